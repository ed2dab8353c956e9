#include "pipelines/plan/training.h"

#include <fmt/format.h>

#include <ranges>

#include "pipelines/plan/plan.h"

namespace tally::pipelines {

std::expected<void, std::string> CheckTraining(const Chain& chain, bool with_dx) {
  if (chain.layers.size() < 2) return std::unexpected("no backward pass of fewer than two layers: nothing is kept");
  for (size_t i = 0; i < chain.layers.size(); ++i) {
    const Layer& layer = chain.layers[i];
    const bool is_last = i + 1 == chain.layers.size();
    const char* wrong = nullptr;
    if (layer.activation > Activation::kRelu) wrong = "an activation other than ReLU";
    if (is_last && layer.activation != Activation::kNone) wrong = "an activation, and is the last one";
    if (layer.norm != Norm::kNone) wrong = "a norm";
    if (layer.residual) wrong = "the chain's input added";
    if (layer.takes_input != TakesInput::kNo) wrong = "the chain's input joined to it";
    if (layer.out > kMostWidth) wrong = "more columns than stay in registers";
    if (wrong != nullptr) return std::unexpected(fmt::format("no backward pass: layer {} has {}", i, wrong));
  }
  if (with_dx && (chain.input() % 16 != 0 || chain.input() > kMostWidth)) {
    return std::unexpected(
        fmt::format("no gradient of {} columns of input: a multiple of 16, {} at most; it is that of "
                    "the first layer times its weights",
                    chain.input(), kMostWidth));
  }
  return {};
}

Chain Forward(const Chain& chain) {
  Chain forward = chain;
  for (Layer& layer : forward.layers | std::views::take(chain.layers.size() - 1)) {
    layer.saves = true;
    if (layer.activation == Activation::kRelu) layer.mask = Mask::kWritten;
  }
  return forward;
}

Chain Backward(const Chain& chain, bool with_dx) {
  Chain backward{.element = chain.element, .transposed = true, .layers = {}};
  for (size_t i = chain.layers.size(); i-- > (with_dx ? 0 : 1);) {
    const bool is_masked = i > 0 && chain.layers[i - 1].activation == Activation::kRelu;
    backward.layers.push_back({.hidden = chain.layers[i].out,
                               .out = chain.layers[i].hidden,
                               .mask = is_masked ? Mask::kApplied : Mask::kNone,
                               .saves = true});
  }
  backward.layers.back().saves = false;  // it is the result
  return backward;
}

int64_t GradientsAt(const Chain& chain, size_t layer, int64_t rows) {
  int64_t columns = 0;
  for (const Layer& before : chain.layers | std::views::take(layer)) columns += before.out;
  return rows * columns * 2;
}

int64_t MaskAt(const Chain& chain, size_t layer, int64_t rows) {
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  int64_t words = 0;  // of a thread
  for (const Layer& before : chain.layers | std::views::take(layer))
    words += (before.out + kPanelColumns - 1) / kPanelColumns;
  return GradientBytes(chain, rows) + tiles * words * kWarpgroupThreads * 4;
}

}  // namespace tally::pipelines
