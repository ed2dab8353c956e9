#include "server/executor/session/launch_gates.h"

#include <algorithm>

#include "proto/device/gate_abi.h"

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

// Blocks of the gated kernel that the device holds at one time.
uint64_t NumResident(const VaryingLaunch& launch, const GatedFunction& code) {
  const int threads = launch.num_threads();
  const auto [place, is_new] =
      launch.kernel.num_resident.try_emplace({static_cast<uint32_t>(threads), launch.shape.shared_bytes});
  if (is_new) {
    int per_multiprocessor = 0;
    launch.served.driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, code.function, threads,
                                                                       launch.shape.shared_bytes);
    place->second = static_cast<uint64_t>(per_multiprocessor) * launch.device.num_multiprocessors;
  }
  return place->second;
}

}  // namespace

std::optional<GatedFunction> FindGate(const VaryingLaunch& launch, VariantModule* variants) {
  const Kernel& kernel = launch.request.kernel();
  if (kernel.gate) {
    GatedFunction code{kernel.function, *kernel.gate};
    if (code.function == nullptr &&
        launch.served.driver().cuKernelGetFunction(&code.function, kernel.kernel) != CUDA_SUCCESS) {
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

bool FitsGate(const VaryingLaunch& launch, const GatedFunction& code) {
  const GateNeeds needs = NeedsOf(launch.request.attributes());
  if (launch.device.gated == nullptr || !needs.is_possible) return false;
  if (launch.shape.num_blocks() > GatedQueue::kMostNumbers / 4) return false;
  if ((needs.has_clusters || needs.is_programmatic) && !code.gate.gates_clusters) return false;
  return !needs.has_clusters || launch.shape.num_blocks() % needs.cluster_blocks == 0;
}

GatedLaunch MakeGatedLaunch(const VaryingLaunch& launch, const GatedFunction& code, uint32_t chunk) {
  const std::span<const CUlaunchAttribute> attributes = launch.request.attributes();
  GatedLaunch gated;
  gated.function = code.function;
  gated.grid = launch.shape.grid;
  gated.block = launch.shape.block;
  gated.shared_bytes = launch.shape.shared_bytes;
  gated.attributes.assign(attributes.begin(), attributes.end());
  gated.cluster_blocks = NeedsOf(attributes).cluster_blocks;
  gated.parameters = launch.Parameters(code.gate.hidden_offset, sizeof(device::GateParameters));
  gated.hidden_offset = code.gate.hidden_offset;
  gated.chunk = chunk;
  // Blocks that are there together may wait for one another in all directions; otherwise only for earlier ones.
  gated.is_whole = code.gate.waits_for_blocks && launch.shape.num_blocks() <= NumResident(launch, code);
  return gated;
}

uint32_t ChunkFor(const VaryingLaunch& launch, const GatedFunction& code, std::chrono::nanoseconds duration) {
  if (duration <= duration.zero())
    return static_cast<uint32_t>(std::clamp<uint64_t>(NumResident(launch, code), 1, kLargestChunk));
  const GateNeeds needs = NeedsOf(launch.request.attributes());
  const uint64_t num_blocks = launch.shape.num_blocks();
  const uint64_t num_numbers = needs.has_clusters ? num_blocks / needs.cluster_blocks : num_blocks;
  const uint64_t in_time =
      num_numbers * static_cast<uint64_t>(kPromisedAhead.count()) / static_cast<uint64_t>(duration.count());
  return static_cast<uint32_t>(std::clamp<uint64_t>(in_time, 1, kLargestChunk));
}

std::chrono::nanoseconds PieceOf(const VaryingLaunch& launch, const GatedFunction& code, uint32_t chunk,
                                 std::chrono::nanoseconds duration) {
  const GateNeeds needs = NeedsOf(launch.request.attributes());
  const uint64_t promised = uint64_t{chunk} * std::max<uint32_t>(needs.cluster_blocks, 1);
  const uint64_t num_blocks = launch.shape.num_blocks();
  const uint64_t run_on = std::min(num_blocks, NumResident(launch, code) + promised);
  return std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(duration.count()) *
                                                       static_cast<double>(run_on) / static_cast<double>(num_blocks)));
}

}  // namespace tally::server
