#include "tests/gpu/gate_matrix/timing.h"

#include <algorithm>

namespace tally::gate_matrix {
namespace {

template <typename T>
std::string Bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

double Percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

constexpr uint32_t kElements = 1 << 28;  // of the largest elementwise launch

Launch MakeLaunch(CUmodule module, const char* kernel, uint32_t blocks, uint32_t threads, CUdeviceptr out, int us) {
  Launch launch;
  CHECK_DRIVER(cuModuleGetFunction(&launch.function, module, kernel));
  launch.config.gridDimX = blocks;
  launch.config.blockDimX = threads;
  launch.config.gridDimY = launch.config.gridDimZ = launch.config.blockDimY = launch.config.blockDimZ = 1;
  if (std::string(kernel) != "Empty")
    launch.parameters = {Bytes(out), Bytes(CUdeviceptr{0}), Bytes(static_cast<int>(kElements)), Bytes(us)};
  return launch;
}

// One launch of a graph of `length` launches, on the GPU's clock; `record` is written before each, if there is one.
double MedianOfGraph(const Streams& streams, const Launch& launch, uint32_t length, CUdeviceptr record, uint32_t chunk,
                     const device::GateRecord* fresh, bool has_gate) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CHECK_DRIVER(cuStreamBeginCapture_v2(streams.work, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (uint32_t i = 0; i < length; ++i) {
    device::GateParameters gate = {0, 0, 0};
    if (record != 0) gate = GateParametersFor(launch, record, i * launch.num_units(), chunk);
    Submit(launch, streams.work, has_gate ? &gate : nullptr);
  }
  CHECK_DRIVER(cuStreamEndCapture(streams.work, &graph));
  CHECK_DRIVER(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CUevent began = nullptr, ended = nullptr;
  CHECK_DRIVER(cuEventCreate(&began, CU_EVENT_DEFAULT));
  CHECK_DRIVER(cuEventCreate(&ended, CU_EVENT_DEFAULT));
  constexpr int kWarmUp = 3, kRuns = 15;
  std::vector<double> times;
  for (int run = 0; run < kWarmUp + kRuns; ++run) {
    if (fresh != nullptr) CHECK_DRIVER(cuMemcpyHtoDAsync_v2(record, fresh, sizeof(*fresh), streams.work));
    CHECK_DRIVER(cuEventRecord(began, streams.work));
    CHECK_DRIVER(cuGraphLaunch(exec, streams.work));
    CHECK_DRIVER(cuEventRecord(ended, streams.work));
    CHECK_DRIVER(cuStreamSynchronize(streams.work));
    float ms = 0;
    CHECK_DRIVER(cuEventElapsedTime(&ms, began, ended));
    if (run >= kWarmUp) times.push_back(ms * 1000.0 / length);
  }
  CHECK_DRIVER(cuGraphExecDestroy(exec));
  CHECK_DRIVER(cuGraphDestroy(graph));
  return Percentile(times, 0.5);
}

}  // namespace

std::vector<CostResult> MeasureCosts(const Streams& streams, CUmodule original, CUmodule gated) {
  struct Case {
    const char* name;
    const char* kernel;
    uint32_t blocks, threads, length;
    int us;
  };
  constexpr Case kCases[] = {
      {"empty, 1 block", "Empty", 1, 32, 200, 0},
      {"empty, 1056 blocks", "Empty", 1056, 256, 200, 0},
      {"empty, 1M blocks", "Empty", 1 << 20, 256, 1, 0},
      {"elementwise, 1056 blocks", "ElementWise", 1056, 256, 200, 0},
      {"elementwise, 16384 blocks", "ElementWise", 16384, 256, 50, 0},
      {"elementwise, 1M blocks", "ElementWise", 1 << 20, 256, 1, 0},
      {"multiply-add 5 us, 264 blocks", "MultiplyAdd", 264, 256, 100, 5},
      {"multiply-add 20 us, 8448 blocks", "MultiplyAdd", 8448, 256, 5, 20},
  };
  CUdeviceptr out = 0, record = 0;
  CHECK_DRIVER(cuMemAlloc_v2(&out, size_t{kElements} * sizeof(float)));
  CHECK_DRIVER(cuMemsetD32Async(out, 0, kElements, streams.work));
  CHECK_DRIVER(cuMemAlloc_v2(&record, device::kGateRecordAlignment));
  void* pinned = nullptr;
  CHECK_DRIVER(cuMemHostAlloc(&pinned, 64, 0));
  auto* const fresh = static_cast<device::GateRecord*>(pinned);
  std::vector<CostResult> results;
  for (const Case& test : kCases) {
    const Launch plain = MakeLaunch(original, test.kernel, test.blocks, test.threads, out, test.us);
    const Launch with_gate = MakeLaunch(gated, test.kernel, test.blocks, test.threads, out, test.us);
    CostResult& result = results.emplace_back();
    result.name = test.name;
    result.original_us = MedianOfGraph(streams, plain, test.length, 0, 0, nullptr, false);
    result.off_us = MedianOfGraph(streams, with_gate, test.length, 0, 0, nullptr, true);
    *fresh = {1u << 31, 0, 0, 0};
    result.committed_us = MedianOfGraph(streams, with_gate, test.length, record, 4096, fresh, true);
    *fresh = {0, 0, 0, 0};
    result.fresh_us = MedianOfGraph(streams, with_gate, test.length, record, 4096, fresh, true);
    result.fresh_large_us = MedianOfGraph(streams, with_gate, test.length, record, 16384, fresh, true);
  }
  return results;
}

std::vector<StopResult> MeasureStops(const Streams& streams, CUmodule gated) {
  struct Case {
    const char* name;
    const char* kernel;
    uint32_t blocks, launches;
    int us;
    uint32_t chunk;
  };
  // Queues of about 10 ms and more, one wave being 1056 blocks of an H100 or H200.
  constexpr Case kCases[] = {
      {"2 us blocks, 64 launches", "Spin", 84480, 64, 2, 4096},
      {"20 us blocks, 1 launch", "Spin", 528000, 1, 20, 256},
      {"20 us blocks, 64 launches", "Spin", 8448, 64, 20, 256},
      {"100 us blocks, 64 launches", "Spin", 2112, 64, 100, 1},
      {"elementwise, 1M blocks, 16 launches", "ElementWise", 1 << 20, 16, 0, 16384},
      {"elementwise, 16K blocks, 256 launches", "ElementWise", 16384, 256, 0, 16384},
  };
  CUdeviceptr out = 0;
  CHECK_DRIVER(cuMemAlloc_v2(&out, size_t{kElements} * sizeof(float)));
  GateQueue queue(streams.work, streams.control);
  constexpr uint32_t kRuns = 40;
  std::vector<StopResult> results;
  for (const Case& test : kCases) {
    const Launch launch = MakeLaunch(gated, test.kernel, test.blocks, 256, out, test.us);
    std::vector<double> times, left;
    for (uint32_t run = 0; run < kRuns + 2; ++run) {
      queue.Reset(0);
      for (uint32_t i = 0; i < test.launches; ++i) queue.Add(launch, test.chunk);
      WaitUntil(Clock::now() + std::chrono::microseconds(100 + run * 37));
      const auto began = Clock::now();
      queue.Stop();
      while (driver.cuStreamQuery(streams.work) == CUDA_ERROR_NOT_READY) {
        if (Clock::now() - began > std::chrono::seconds(10)) Die(std::string(test.name) + ": does not stop");
      }
      const double us = Microseconds(Clock::now() - began).count();
      queue.Settle();
      if (run < 2) continue;
      times.push_back(us);
      left.push_back(queue.progress().total - queue.progress().done);
    }
    results.push_back({test.name, test.chunk, kRuns, Percentile(times, 0.5), Percentile(times, 0.99),
                       Percentile(times, 1), static_cast<uint32_t>(Percentile(left, 0.5))});
  }
  return results;
}

}  // namespace tally::gate_matrix
