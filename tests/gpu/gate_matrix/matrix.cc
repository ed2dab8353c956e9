#include "tests/gpu/gate_matrix/matrix.h"

#include <algorithm>
#include <cstring>

namespace tally::gate_matrix {
namespace {

constexpr uint32_t kMaxElements = 1 << 22;
constexpr uint32_t kTailElements = 1 << 14;  // behind `out`: flags and sums of some kernels
constexpr uint32_t kMaxBlocks = 1 << 16;     // as own_counts in kernels.cu

template <typename T>
std::string Bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

template <typename T>
T* Pinned(size_t count) {
  void* memory = nullptr;
  CHECK_DRIVER(cuMemHostAlloc(&memory, count * sizeof(T), 0));
  return static_cast<T*>(memory);
}

void SetAxes(const uint32_t (&values)[3], unsigned& x, unsigned& y, unsigned& z) {
  x = values[0];
  y = values[1];
  z = values[2];
}

}  // namespace

Matrix::Matrix(Streams streams, CUmodule original, CUmodule gated)
    : streams_(streams), original_(original), gated_(gated), queue_(streams.work, streams.control) {
  const size_t elements = kMaxElements + kTailElements;
  CHECK_DRIVER(cuMemAlloc_v2(&out_, elements * sizeof(float)));
  CHECK_DRIVER(cuMemAlloc_v2(&pattern_, elements * sizeof(float)));
  CHECK_DRIVER(cuMemAlloc_v2(&counts_, kMaxBlocks * sizeof(uint32_t)));
  reference_ = Pinned<float>(elements);
  values_ = Pinned<float>(elements);
  count_values_ = Pinned<uint32_t>(kMaxBlocks);
  for (size_t i = 0; i < elements; ++i)
    values_[i] = static_cast<float>((i * 2654435761u >> 20) & 15) + static_cast<float>(i % 7) * 0.125f;
  CHECK_DRIVER(cuMemcpyHtoD_v2(pattern_, values_, elements * sizeof(float)));
}

CUdeviceptr Matrix::Address(bool is_gated, const char* variable) const {
  CUdeviceptr address = 0;
  size_t bytes = 0;
  CHECK_DRIVER(cuModuleGetGlobal_v2(&address, &bytes, is_gated ? gated_ : original_, variable));
  return address;
}

Launch Matrix::MakeLaunch(const Item& item, bool is_gated) const {
  Launch launch;
  CHECK_DRIVER(cuModuleGetFunction(&launch.function, is_gated ? gated_ : original_, item.kernel_name().c_str()));
  SetAxes(item.grid, launch.config.gridDimX, launch.config.gridDimY, launch.config.gridDimZ);
  SetAxes(item.block, launch.config.blockDimX, launch.config.blockDimY, launch.config.blockDimZ);
  launch.config.sharedMemBytes = item.dynamic_shared_bytes;
  launch.cluster_blocks = item.cluster_blocks;
  launch.uses_parameter_buffer = item.uses_parameter_buffer;
  if (item.dynamic_shared_bytes > 48 * 1024)
    CHECK_DRIVER(cuFuncSetAttribute(launch.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                    static_cast<int>(item.dynamic_shared_bytes)));
  if (item.launched_cluster[0] != 0) {
    CUlaunchAttribute& attribute = launch.attributes.emplace_back();
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    SetAxes(item.launched_cluster, attribute.value.clusterDim.x, attribute.value.clusterDim.y,
            attribute.value.clusterDim.z);
  }
  if (item.is_programmatic) {
    CUlaunchAttribute& attribute = launch.attributes.emplace_back();
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  if (item.has_standard_parameters)
    launch.parameters = {Bytes(out_), Bytes(counts_), Bytes(static_cast<int>(item.num_elements())), Bytes(item.us)};
  if (item.large_parameter_bytes != 0) {
    std::string large(item.large_parameter_bytes, '\0');
    for (size_t i = 0; i + 4 <= large.size(); i += 4) {
      const float value = static_cast<float>(i) * 0.0625f;
      std::memcpy(&large[i], &value, sizeof(value));
    }
    launch.parameters.push_back(std::move(large));
  }
  return launch;
}

void Matrix::Prepare(const Item& item, bool is_gated) {
  const size_t elements = item.num_elements() + kTailElements;
  const bool has_own = item.name == "NoParameters";
  const CUdeviceptr out = has_own ? Address(is_gated, "own_out") : out_;
  const CUdeviceptr counts = has_own ? Address(is_gated, "own_counts") : counts_;
  if (item.starts_from_zeros) {
    CHECK_DRIVER(cuMemsetD32Async(out, 0, elements, streams_.work));
  } else {
    CHECK_DRIVER(cuMemcpyDtoDAsync_v2(out, pattern_, item.num_elements() * sizeof(float), streams_.work));
    if (!has_own)
      CHECK_DRIVER(cuMemsetD32Async(out + item.num_elements() * sizeof(float), 0, kTailElements, streams_.work));
  }
  CHECK_DRIVER(cuMemsetD32Async(counts, 0, kMaxBlocks, streams_.work));
  CHECK_DRIVER(cuStreamSynchronize(streams_.work));
}

Matrix::Output Matrix::Fetch(const Item& item, bool is_gated, bool is_reference) {
  const bool has_own = item.name == "NoParameters";
  float* const values = is_reference ? reference_ : values_;
  const size_t elements = item.num_elements() + (has_own ? 0 : kTailElements);
  CHECK_DRIVER(cuMemcpyDtoHAsync_v2(values, has_own ? Address(is_gated, "own_out") : out_, elements * sizeof(float),
                                    streams_.work));
  CHECK_DRIVER(cuMemcpyDtoHAsync_v2(count_values_, has_own ? Address(is_gated, "own_counts") : counts_,
                                    kMaxBlocks * sizeof(uint32_t), streams_.work));
  CHECK_DRIVER(cuStreamSynchronize(streams_.work));
  return {values, count_values_};
}

// Against the reference. Empty if all is right.
std::string Matrix::Compare(const Item& item, const Output& output, uint32_t expected_count) const {
  if (item.name == "Empty") expected_count = 0;  // leaves no trace
  uint32_t num_wrong = 0, first_wrong = 0;
  for (uint32_t i = 0; i < kMaxBlocks; ++i) {
    if (output.counts[i] == (i < item.num_blocks() ? expected_count : 0)) continue;
    if (num_wrong++ == 0) first_wrong = i;
  }
  if (num_wrong != 0)
    return std::to_string(num_wrong) + " blocks ran not exactly once (block " + std::to_string(first_wrong) + ": " +
           std::to_string(output.counts[first_wrong]) + " times instead of " + std::to_string(expected_count) + ")";
  const size_t bytes = (item.num_elements() + (item.name == "NoParameters" ? 0 : kTailElements)) * sizeof(float);
  if (std::memcmp(output.values, reference_, bytes) == 0) return {};
  size_t at = 0;
  while (std::memcmp(&output.values[at], &reference_[at], sizeof(float)) == 0) ++at;
  return "the output differs from element " + std::to_string(at) + " of " + std::to_string(item.num_elements()) + " on";
}

ItemResult Matrix::RunCanary() {
  const Item& item = Items().front();
  ItemResult result;
  result.name = "canary";
  Prepare(item, true);
  queue_.Reset(0);
  queue_.Stop();
  queue_.Settle();
  queue_.Add(MakeLaunch(item, true), 64);
  queue_.Settle();
  ++result.num_stops;
  std::memset(reference_, 0, (item.num_elements() + kTailElements) * sizeof(float));
  CHECK_DRIVER(cuMemcpyDtoH_v2(reference_, pattern_, item.num_elements() * sizeof(float)));
  result.failure = Compare(item, Fetch(item, true, false), 0);
  if (!result.failure.empty()) {
    result.failure = "stopped before the launch: " + result.failure;
    return result;
  }
  if (queue_.progress().done != 0 || !queue_.Reopen()) {
    result.failure = "the watermark has risen although the queue was stopped";
    return result;
  }
  queue_.Relaunch();
  queue_.Settle();
  const Output output = Fetch(item, true, false);
  for (uint32_t i = 0; i < item.num_blocks() && result.is_passed(); ++i)
    if (output.counts[i] != 1)
      result.failure = "resumed: block " + std::to_string(i) + " ran " + std::to_string(output.counts[i]) + " times";
  ++result.num_runs;
  return result;
}

void Matrix::RunOnce(const Item& item, std::mt19937& random, ItemResult& result) {
  constexpr uint32_t kChunks[] = {1, 16, 256, 4096, 16384};
  constexpr uint32_t kMaxStops = 6;
  const uint32_t chunk = kChunks[random() % std::size(kChunks)];
  Prepare(item, true);
  queue_.Reset(random() % 4 == 0 ? 0 : random() % 1000000);
  if (random() % 8 == 0) {
    queue_.Stop();
    queue_.Settle();
    ++result.num_before;
  }
  CUgraphExec graph_exec = nullptr;
  const Launch launch = MakeLaunch(item, true);
  if (item.is_captured) CHECK_DRIVER(cuStreamBeginCapture_v2(streams_.work, CU_STREAM_CAPTURE_MODE_RELAXED));
  auto began = Clock::now();
  for (uint32_t i = 0; i < item.chain; ++i) queue_.Add(launch, chunk);
  if (item.is_captured) {
    CUgraph graph = nullptr;
    CHECK_DRIVER(cuStreamEndCapture(streams_.work, &graph));
    CHECK_DRIVER(cuGraphInstantiateWithFlags(&graph_exec, graph, 0));
    CHECK_DRIVER(cuGraphDestroy(graph));
    began = Clock::now();
    CHECK_DRIVER(cuGraphLaunch(graph_exec, streams_.work));
  }
  const uint32_t num_stops = random() % (kMaxStops + 1);
  bool is_complete = false;
  for (uint32_t i = 0; !is_complete && i < std::max(num_stops, 1u); ++i) {
    const double share = static_cast<double>(random()) / static_cast<double>(std::mt19937::max());
    WaitUntil(began + std::chrono::duration_cast<Clock::duration>(Microseconds(share * 1.2 * result.original_us)));
    queue_.Stop();
    queue_.Settle();
    ++result.num_stops;
    result.num_inside += queue_.progress().is_inside ? 1 : 0;
    is_complete = !queue_.Reopen();
    began = Clock::now();
    if (is_complete) break;
    if (item.is_captured) {
      CHECK_DRIVER(cuGraphLaunch(graph_exec, streams_.work));
    } else {
      queue_.Relaunch();
    }
  }
  queue_.Settle();
  if (graph_exec != nullptr) CHECK_DRIVER(cuGraphExecDestroy(graph_exec));
  result.failure = Compare(item, Fetch(item, true, false), item.chain);
}

ItemResult Matrix::Run(const Item& item, uint32_t num_runs, std::mt19937& random) {
  ItemResult result;
  result.name = item.name;
  const Launch original = MakeLaunch(item, false), gated = MakeLaunch(item, true);
  int occupancy[2] = {};
  for (const bool is_gated : {false, true})
    CHECK_DRIVER(
        cuOccupancyMaxActiveBlocksPerMultiprocessor(&occupancy[is_gated], is_gated ? gated.function : original.function,
                                                    static_cast<int>(item.num_threads()), item.dynamic_shared_bytes));
  // The reference; twice, as the first launch loads code.
  for (int i = 0; i < 2; ++i) {
    Prepare(item, false);
    const auto began = Clock::now();
    for (uint32_t k = 0; k < item.chain; ++k) Submit(original, streams_.work, nullptr);
    CHECK_DRIVER(cuStreamSynchronize(streams_.work));
    result.original_us = Microseconds(Clock::now() - began).count();
  }
  result.failure = Compare(item, Fetch(item, false, true), item.chain);
  if (!result.is_passed()) {
    result.failure = "the original itself: " + result.failure;
    return result;
  }
  // With the gate off.
  constexpr device::GateParameters kOff = {0, 0, 0};
  Prepare(item, true);
  for (uint32_t k = 0; k < item.chain; ++k) Submit(gated, streams_.work, &kOff);
  queue_.Settle();
  result.failure = Compare(item, Fetch(item, true, false), item.chain);
  if (!result.is_passed()) {
    result.failure = "gate off: " + result.failure;
    return result;
  }
  for (; result.num_runs < num_runs && result.is_passed(); ++result.num_runs) RunOnce(item, random, result);
  if (result.is_passed() && occupancy[0] != occupancy[1])
    result.failure =
        "other occupancy: " + std::to_string(occupancy[0]) + " blocks, gated " + std::to_string(occupancy[1]);
  return result;
}

}  // namespace tally::gate_matrix
