#include "server/executor/issue/launch_gates.h"

#include <algorithm>

#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/issue/launch_owner.h"
#include "server/executor/issue/variant_registry.h"

namespace tally::server {
namespace {

// What a launch in a queue that may be stopped is asked for beyond its grid.
struct GateNeeds {
  bool is_possible = true;
  bool has_clusters = false;
  bool is_programmatic = false;  // may begin before the launch in front of it has ended
  uint32_t cluster_blocks = 0;
};

GateNeeds NeedsOf(std::span<const CUlaunchAttribute> attributes) {
  GateNeeds needs;
  for (const CUlaunchAttribute& attribute : attributes) {
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        needs.is_possible = needs.is_possible && attribute.value.cooperative == 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
        const auto& size = attribute.value.clusterDim;
        needs.has_clusters = true;
        needs.cluster_blocks = size.x * size.y * size.z;
        break;
      }
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        needs.is_programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
        break;
      default:  // events that say when it begins, nodes of graphs, clusters of a size that the driver chooses
        needs.is_possible = false;
    }
  }
  if (needs.has_clusters && needs.cluster_blocks == 0) needs.is_possible = false;
  return needs;
}

// Blocks that are done in about this time are promised at once: rarely enough to cost little, and not many more run
// after a stop than would have anyway.
constexpr std::chrono::nanoseconds kPromisedAhead = std::chrono::microseconds(20);
constexpr uint64_t kLargestChunk = 16'384;
constexpr uint64_t kMostBlocks = GatedQueue::kMostNumbers / 4;
constexpr uint64_t kFinerIfUnknown = 16;
// Where one block fills a multiprocessor, those that leave do so one after another, each in up to a microsecond as we
// reckon: with more pieces that would take longer than the smaller piece saves.
constexpr uint64_t kMostPieces = 64;

// Blocks of the gated kernel that the device holds at one time.
uint64_t NumResident(const PendingLaunch& launch, const GatedFunction& code) {
  const int threads = launch.num_threads();
  const auto [place, is_new] =
      launch.here->num_resident.try_emplace({static_cast<uint32_t>(threads), launch.shape.shared_bytes});
  if (is_new) {
    int per_multiprocessor = 0;
    launch.owner->driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, code.function, threads,
                                                                     launch.shape.shared_bytes);
    place->second = static_cast<uint64_t>(per_multiprocessor) * launch.here->device->num_multiprocessors;
  }
  return place->second;
}

std::optional<GatedFunction> FindCode(const PendingLaunch& launch, VariantModule* variants) {
  const Kernel& kernel = *launch.kernel;
  if (kernel.gate) {
    GatedFunction code{kernel.function, *kernel.gate};
    if (code.function == nullptr &&
        launch.owner->driver.cuKernelGetFunction(&code.function, kernel.kernel) != CUDA_SUCCESS) {
      return std::nullopt;
    }
    return code;
  }
  if (variants == nullptr || !variants->Prepare(variants->gated(), launch.shape)) return std::nullopt;
  const VariantModule::Form& form = variants->gated();
  return GatedFunction{form.function,
                       {.hidden_offset = static_cast<uint32_t>(form.hidden_offset),
                        .gates_clusters = form.gates_clusters,
                        .waits_for_blocks = form.waits_for_blocks}};
}

uint64_t NumBlocks(const PendingLaunch& launch, const GatedFunction& code) {
  return launch.shape.num_blocks() * code.finer;
}

constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// Of a kernel that takes any grid: so that the blocks that the device holds at one time are done in about a piece.
uint32_t FinerBy(const PendingLaunch& launch, const GatedFunction& code, std::chrono::nanoseconds duration) {
  constexpr std::chrono::nanoseconds kPiece = kPromisedAhead;
  const uint64_t num_blocks = std::max<uint64_t>(launch.shape.num_blocks(), 1);
  uint64_t finer = kFinerIfUnknown;
  if (duration > duration.zero()) {
    const uint64_t num_pieces = std::min(CeilDiv(static_cast<uint64_t>(duration.count()), kPiece.count()), kMostPieces);
    finer = num_pieces == 1 ? 1 : CeilDiv(num_pieces * NumResident(launch, code), num_blocks);
  }
  return static_cast<uint32_t>(std::clamp<uint64_t>(finer, 1, std::max<uint64_t>(kMostBlocks / num_blocks, 1)));
}

}  // namespace

std::optional<GatedFunction> FindGate(const PendingLaunch& launch, VariantModule* variants,
                                      std::chrono::nanoseconds duration) {
  std::optional<GatedFunction> code = FindCode(launch, variants);
  if (code && launch.here->takes_any_grid) {
    code->gate.waits_for_blocks = false;
    code->finer = FinerBy(launch, *code, duration);
  }
  return code;
}

bool FitsGate(const PendingLaunch& launch, const GatedFunction& code) {
  const GateNeeds needs = NeedsOf(launch.attributes);
  if (launch.here->device->gated == nullptr || !needs.is_possible) return false;
  if (NumBlocks(launch, code) > kMostBlocks) return false;
  if ((needs.has_clusters || needs.is_programmatic) && !code.gate.gates_clusters) return false;
  return !needs.has_clusters || launch.shape.num_blocks() % needs.cluster_blocks == 0;
}

GatedForm FormOf(const PendingLaunch& launch, const GatedFunction& code, uint32_t chunk) {
  GatedForm form;
  form.function = code.function;
  form.hidden_offset = code.gate.hidden_offset;
  form.cluster_blocks = NeedsOf(launch.attributes).cluster_blocks;
  form.chunk = chunk;
  // Blocks that are there together may wait for one another in all directions; otherwise only for earlier ones.
  form.is_whole = code.gate.waits_for_blocks && launch.shape.num_blocks() <= NumResident(launch, code);
  return form;
}

uint32_t ChunkFor(const PendingLaunch& launch, const GatedFunction& code, std::chrono::nanoseconds duration) {
  if (code.finer > 1) return 1;  // a piece more would double what runs on after a stop
  if (duration <= duration.zero())
    return static_cast<uint32_t>(std::clamp<uint64_t>(NumResident(launch, code), 1, kLargestChunk));
  const GateNeeds needs = NeedsOf(launch.attributes);
  const uint64_t num_blocks = launch.shape.num_blocks();
  const uint64_t num_numbers = needs.has_clusters ? num_blocks / needs.cluster_blocks : num_blocks;
  const uint64_t in_time =
      num_numbers * static_cast<uint64_t>(kPromisedAhead.count()) / static_cast<uint64_t>(duration.count());
  return static_cast<uint32_t>(std::clamp<uint64_t>(in_time, 1, kLargestChunk));
}

std::chrono::nanoseconds PieceOf(const PendingLaunch& launch, const GatedFunction& code, uint32_t chunk,
                                 std::chrono::nanoseconds duration) {
  const GateNeeds needs = NeedsOf(launch.attributes);
  const uint64_t promised = uint64_t{chunk} * std::max<uint32_t>(needs.cluster_blocks, 1);
  const uint64_t num_blocks = NumBlocks(launch, code);
  const uint64_t run_on = std::min(num_blocks, NumResident(launch, code) + promised);
  return std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(duration.count()) *
                                                       static_cast<double>(run_on) / static_cast<double>(num_blocks)));
}

}  // namespace tally::server
