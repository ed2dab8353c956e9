#include "bench/taskgraph-model/picture.h"

#include <fmt/format.h>

#include <algorithm>

namespace tally::taskgraph_model {
namespace {

using scheduler::PlanStep;
using scheduler::StepKind;
using scheduler::TileOperation;

constexpr double kLeft = 60, kTop = 40, kWidth = 820, kTaskHeight = 24, kMoveHeight = 6, kRowHeight = 44;

struct Style {
  TileOperation operation;
  const char* name;
  const char* colour;
};
constexpr Style kStyles[] = {{TileOperation::kGetrf, "getrf", "#c0392b"},
                             {TileOperation::kPotrf, "potrf", "#c0392b"},
                             {TileOperation::kTrsm, "trsm", "#e08e0b"},
                             {TileOperation::kSyrk, "syrk", "#2e8b57"},
                             {TileOperation::kGemm, "gemm", "#2c6fbb"}};
constexpr const char* kMoveColour = "#808080";

const Style& StyleOf(TileOperation operation) {
  return *std::ranges::find(kStyles, operation, [](const Style& style) { return style.operation; });
}

std::string Bar(double x, double y, double width, double height, const char* colour) {
  return fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" stroke=\"white\" "
      "stroke-width=\"0.5\"/>\n",
      x, y, std::max(width, 0.8), height, colour);
}
std::string Text(double x, double y, const std::string& text) {
  return fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", x, y, text);
}

}  // namespace

std::string PictureOf(const scheduler::TaskPlan& plan, std::span<const TileOperation> operations,
                      const std::string& title) {
  const double scale = kWidth / static_cast<double>(std::max<uint64_t>(plan.end_ns(), 1));
  std::string bars;
  size_t num_gpus = 1;
  for (const PlanStep& step : plan.steps()) {
    if (step.kind == StepKind::kDrop) continue;
    num_gpus = std::max<size_t>(num_gpus, step.device + 1);
    const double x = kLeft + static_cast<double>(step.begin_ns) * scale;
    const double y = kTop + step.device * kRowHeight;
    const double width = static_cast<double>(step.end_ns - step.begin_ns) * scale;
    bars += step.kind == StepKind::kTask ? Bar(x, y, width, kTaskHeight, StyleOf(operations[step.what]).colour)
                                         : Bar(x, y + kTaskHeight + 1, width, kMoveHeight, kMoveColour);
  }
  const double bottom = kTop + static_cast<double>(num_gpus) * kRowHeight;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"{0:.0f}\" viewBox=\"0 0 900 {0:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"900\" height=\"{0:.0f}\" fill=\"white\"/>\n",
      bottom + 40);
  svg += Text(kLeft, 24, title) + bars;
  for (size_t gpu = 0; gpu < num_gpus; ++gpu) {
    svg += Text(8, kTop + static_cast<double>(gpu) * kRowHeight + 16, fmt::format("GPU {}", gpu));
  }
  double x = kLeft;
  const auto key = [&](const char* name, const char* colour) {
    svg += Bar(x, bottom + 8, 14, 12, colour) + Text(x + 20, bottom + 18, name);
    x += 110;
  };
  for (const Style& style : kStyles) {
    if (std::ranges::find(operations, style.operation) != operations.end()) key(style.name, style.colour);
  }
  key("a tile arrives", kMoveColour);
  return svg +
         Text(kLeft + kWidth - 60, bottom + 18, fmt::format("{:.1f} ms", static_cast<double>(plan.end_ns()) / 1e6)) +
         "</svg>\n";
}

}  // namespace tally::taskgraph_model
