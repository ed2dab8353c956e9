#include "pipelines/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

namespace tally::pipelines {
namespace {

constexpr int kElementBytes = 2;
constexpr int kSlotPanelBytes = kTileRows * kPanelColumns * kElementBytes;
constexpr int kMostStages = 16;
constexpr int kMostMmaStages = 4;
constexpr int kLeastCapability = 80;  // mma.sync of bf16, cp.async
// Multiply-adds of one multiprocessor per clock, of half-size elements.
constexpr double kProductsPerClock = 2048;
constexpr double kMmaProductsPerClock = 1024;
constexpr double kLaunchUs = 2.2;
// What a tile waits for besides its products: bias, activation and packing of a layer. This and what follows is fitted
// to runs on an H100 and an H200.
constexpr double kLayerUs = 0.35;
// Of the time that memory takes for what is saved: what products do not hide.
constexpr double kBesideSaving = 0.5;
// Times what it takes if a block has one warpgroup, which cannot have enough under way.
constexpr double kSavingAlone = 1.3;

// Streamed: until the first panel is there; besides the layers, a round's rows and results.
constexpr double kFirstPanelUs = 2.0;
constexpr double kRoundUs = 1.0;
constexpr double kStreamedLayerUs = 0.4;
constexpr double kOverProducts = 1.2;  // times what the matrix unit takes
// Of 64 rows and 256 columns: exponentials; a norm.
constexpr double kExponentialUs = 0.8;
constexpr double kNormUs = 2.0;

// By mma.sync, fitted to an H200: times what the products take; what else a layer of 128 columns takes, once a round;
// what a round takes besides.
constexpr double kMmaOverProducts = 1.7;
constexpr double kMmaResidentLayerUs = 0.5;
constexpr double kMmaStreamedLayerUs = 0.9;
constexpr double kMmaLayerColumns = 128;
constexpr double kMmaStreamedRoundUs = 2.0;

constexpr int CeilDiv(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

}  // namespace

int FirstHalf(const Layer& layer) {
  if (layer.out > kMostWidth) return kPanelColumns;
  return layer.out <= kPanelColumns ? layer.out : CeilDiv(layer.out, 2 * kPanelColumns) * kPanelColumns;
}

namespace {

int PanelsOf(const Chain& chain, const Layer& layer) {
  return CeilDiv(layer.hidden, kPanelColumns) +
         (layer.takes_input == TakesInput::kNo ? 0 : CeilDiv(chain.input(), kPanelColumns));
}

bool IsWide(const Chain& chain) { return chain.layers.front().out > kMostWidth; }
// Chunks of the first layer, and all that the second gives, are in registers at once.
bool MayBeWide(const Chain& chain) {
  const Layer& first = chain.layers.front();
  return chain.layers.size() > 1 && first.norm == Norm::kNone && !first.residual && first.out <= kMostWideFirst &&
         first.out % (2 * kPanelColumns) == 0 && chain.layers[1].takes_input == TakesInput::kNo;
}
// Of the layers that a warpgroup has in its registers at once.
int MostOut(const Chain& chain) {
  return std::ranges::max(chain.layers | std::views::drop(IsWide(chain) ? 1 : 0), {}, &Layer::out).out;
}
int MostFirstHalf(const Chain& chain) { return std::ranges::max(chain.layers | std::views::transform(FirstHalf)); }

// Of a panel for so many columns of a layer. Transposed ones come in boxes of 64 columns.
int PanelBytes(const Chain& chain, int columns) {
  const int width = chain.transposed ? CeilDiv(columns, kPanelColumns) * kPanelColumns : columns;
  return width * kPanelColumns * kElementBytes;
}

int64_t WeightBytes(const Chain& chain) {
  int64_t bytes = 0;
  for (const Layer& layer : chain.layers) bytes += int64_t{PanelsOf(chain, layer)} * PanelBytes(chain, layer.out);
  return bytes;
}

int StageBytes(const Chain& chain) { return PanelBytes(chain, MostFirstHalf(chain)); }

// From and to the GPU's memory, of one row: what is saved, a bit for each value of a mask.
double SavedRowBytes(const Chain& chain) {
  double bytes = 0;
  for (const Layer& layer : chain.layers)
    bytes += (layer.saves ? layer.out * kElementBytes : 0) + (layer.mask == Mask::kNone ? 0 : layer.out / 8.0);
  return bytes;
}

// A thread may have 65536 registers over the block's threads. ptxas takes up to 254 where a layer gives 256 columns,
// 205 for 128, and 82 for 64; with fewer it spills, or does one product after another. By mma.sync narrow layers fill
// the matrix unit better with four.
int MostWarpgroups(const Chain& chain, const Machine& machine) {
  return MostOut(chain) > 64 ? 2 : machine.has_wgmma ? 3 : 4;
}

// What one tile's layers take, without what is between them.
double ProductUs(const Chain& chain, const Machine& machine, double per_clock) {
  double products = 0;  // multiply-adds
  for (const Layer& layer : chain.layers) products += double{kTileRows} * ColumnsOf(chain, layer) * layer.out;
  return products / per_clock / (machine.clock_ghz * 1e3);
}

// Beyond bias and ReLU.
double EpilogueUs(const Chain& chain) {
  double us = 0;
  for (const Layer& layer : chain.layers) {
    if (layer.activation > Activation::kRelu) us += kExponentialUs * layer.out / kMostWidth;
    if (layer.norm != Norm::kNone) us += kNormUs * layer.out / kMostWidth;
  }
  return us;
}

double PredictedUs(const Chain& chain, const Machine& machine, const Variant& variant, int grid, int64_t rows) {
  const auto layers = static_cast<double>(chain.layers.size());
  const auto rounds = static_cast<double>(CeilDiv(CeilDiv(rows, kTileRows), int64_t{grid} * variant.warpgroups));
  const double saved_us = static_cast<double>(rows) * SavedRowBytes(chain) / machine.memory_bytes_per_us;
  const double memory_us =
      saved_us * (variant.warpgroups == 1 ? kSavingAlone : 1) +
      static_cast<double>(rows) * (chain.input() + chain.output()) * kElementBytes / machine.memory_bytes_per_us;
  const double weights_us = static_cast<double>(WeightBytes(chain)) * grid / machine.l2_bytes_per_us;
  if (!variant.wgmma) {
    double columns = 0;
    for (const Layer& layer : chain.layers) columns += layer.out;
    const double layers_us =
        columns / kMmaLayerColumns * (variant.resident ? kMmaResidentLayerUs : kMmaStreamedLayerUs);
    const double round_us = (variant.resident ? 0 : kMmaStreamedRoundUs) + layers_us + EpilogueUs(chain) +
                            kMmaOverProducts * ProductUs(chain, machine, kMmaProductsPerClock) * variant.warpgroups;
    const double fetch_us = variant.resident ? 0 : rounds * weights_us;
    return kLaunchUs + (variant.resident ? weights_us : kFirstPanelUs) +
           std::max({rounds * round_us + kBesideSaving * saved_us, memory_us, fetch_us});
  }
  const double product_us = ProductUs(chain, machine, kProductsPerClock);
  if (variant.resident) {
    // Warpgroups fill each other's gaps: the matrix unit is the bound, or the longest single way through. No tile
    // begins before the weights are there.
    const double round_us = std::max(product_us * variant.warpgroups, product_us + kLayerUs * layers);
    return kLaunchUs + weights_us + std::max(rounds * round_us + kBesideSaving * saved_us, memory_us);
  }
  const double round_us =
      kRoundUs + kStreamedLayerUs * layers + (kOverProducts * product_us + EpilogueUs(chain)) * variant.warpgroups;
  return kLaunchUs + kFirstPanelUs +
         std::max({rounds * round_us + kBesideSaving * saved_us, memory_us, rounds * weights_us});
}

int GridFor(const Machine& machine, const Variant& variant, int64_t rows) {
  return std::min(CeilDiv(CeilDiv(rows, kTileRows), variant.warpgroups), machine.multiprocessors);
}

}  // namespace

int Threads(const Variant& variant) {
  const bool has_producer = variant.wgmma && !variant.resident;
  return kWarpgroupThreads * (variant.warpgroups + (has_producer ? 1 : 0));
}

int SharedBytes(const Chain& chain, const Variant& variant) {
  int vectors = 0;
  for (const Layer& layer : chain.layers) vectors += layer.out * (layer.norm == Norm::kNone ? 1 : 3);
  if (chain.transposed) vectors = 0;
  const int64_t weights = variant.resident ? WeightBytes(chain) : int64_t{variant.stages} * StageBytes(chain);
  const int slots = variant.warpgroups * CeilDiv(chain.input(), kPanelColumns) * kSlotPanelBytes;
  const int barriers = 8 * (2 * variant.stages + variant.warpgroups);
  return static_cast<int>(std::min<int64_t>(weights + slots + (vectors * 4 + 15) / 16 * 16 + barriers, 1 << 30));
}

std::expected<void, std::string> Check(const Chain& chain, const Machine& machine, int64_t max_rows) {
  if (chain.layers.empty()) return std::unexpected("the pipeline has no linear layer");
  if (chain.layers.size() > kMostLayers)
    return std::unexpected(fmt::format("{} layers; {} at most", chain.layers.size(), kMostLayers));
  if (machine.compute_capability < kLeastCapability) {
    return std::unexpected(fmt::format("the kernels are made for compute capability 8.0 and later, not {}.{}",
                                       machine.compute_capability / 10, machine.compute_capability % 10));
  }
  if (chain.input() < 8 || chain.input() % 8 != 0 || chain.input() > kMostInput) {
    return std::unexpected(fmt::format("{} columns of input; a multiple of 8, {} at most", chain.input(), kMostInput));
  }
  for (size_t i = 0; i < chain.layers.size(); ++i) {
    const Layer& layer = chain.layers[i];
    if (layer.out < 16 || layer.out % 16 != 0) {
      return std::unexpected(fmt::format("layer {} gives {} columns; a multiple of 16 is needed", i, layer.out));
    }
    if (layer.out > kMostWidth && !(i == 0 && MayBeWide(chain))) {
      return std::unexpected(fmt::format("layer {} gives {} columns; from {} on the library is at its roof", i,
                                         layer.out, kMostWidth + 16));
    }
    if (i > 0 && layer.hidden != chain.layers[i - 1].out) {
      return std::unexpected(fmt::format("layer {} takes {} hidden columns, and layer {} gives {}", i, layer.hidden,
                                         i - 1, chain.layers[i - 1].out));
    }
    if (i == 0 && layer.takes_input != TakesInput::kNo)
      return std::unexpected("the first layer takes the input anyway");
    if (layer.residual && layer.out != chain.input()) {
      return std::unexpected(
          fmt::format("layer {} gives {} columns, and the input to be added has {}", i, layer.out, chain.input()));
    }
  }
  if (max_rows < 1 || max_rows > (int64_t{1} << 30))
    return std::unexpected(fmt::format("{} rows; 1 to 2^30", max_rows));
  if (CeilDiv(max_rows, kTileRows) < machine.multiprocessors / 4) {
    return std::unexpected(fmt::format("{} rows fill less than a quarter of the GPU; from {} on", max_rows,
                                       (machine.multiprocessors / 4 - 1) * kTileRows + 1));
  }
  if (VariantsFor(chain, machine, max_rows).empty()) {
    return std::unexpected(
        fmt::format("shared memory of {} bytes is too little for {} columns of input and {} of a layer",
                    machine.shared_bytes, chain.input(), MostOut(chain)));
  }
  return {};
}

std::vector<Variant> VariantsFor(const Chain& chain, const Machine& machine, int64_t max_rows) {
  std::vector<Variant> variants;
  const int64_t tiles = CeilDiv(max_rows, kTileRows);
  // Each is a kernel to compile: by mma.sync one, two and four.
  for (int warpgroups = 1; warpgroups <= MostWarpgroups(chain, machine);
       warpgroups += machine.has_wgmma ? 1 : warpgroups) {
    if (warpgroups > 1 && tiles <= machine.multiprocessors) break;  // one tile for each: no second warpgroup has any
    const Variant resident{.warpgroups = warpgroups, .wgmma = machine.has_wgmma};
    if (!IsWide(chain) && SharedBytes(chain, resident) <= machine.shared_bytes) {
      variants.push_back(resident);
      continue;
    }
    Variant streamed = resident;
    streamed.resident = false;
    streamed.stages = machine.has_wgmma ? kMostStages : kMostMmaStages;
    while (streamed.stages > 2 && SharedBytes(chain, streamed) > machine.shared_bytes) --streamed.stages;
    // By wgmma two panels are multiplied at a time, so with fewer there is nothing ahead. By mma.sync two places are
    // slow, and for one warpgroup at least there are some.
    const int least = machine.has_wgmma || warpgroups > 1 ? 3 : 2;
    if (streamed.stages >= least && SharedBytes(chain, streamed) <= machine.shared_bytes) variants.push_back(streamed);
  }
  return variants;
}

Plan Choose(const Chain& chain, const Machine& machine, const std::vector<Variant>& variants, int64_t rows) {
  Plan best;
  for (const Variant& variant : variants) {
    const int grid = GridFor(machine, variant, rows);
    const double us = PredictedUs(chain, machine, variant, grid, rows);
    if (best.grid == 0 || us < best.predicted_us) best = {variant, grid, us};
  }
  return best;
}

}  // namespace tally::pipelines
