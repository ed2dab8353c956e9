// Batches of launches of a window on the software device, whose results show whether each ran once and in order, and a
// driver that counts, refuses and takes what time it is told.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "scheduler/window/shape.h"
#include "scheduler/window/window.h"
#include "server/executor/dispatch/share_gate.h"
#include "server/executor/dispatch/trace.h"
#include "server/executor/issue/admitted_dispatch.h"
#include "server/executor/issue/driver_arguments.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/issue/launch_owner.h"
#include "server/executor/issue/launch_runs.h"
#include "server/executor/issue/launch_stream.h"
#include "server/executor/issue/preemptibility_meter.h"
#include "server/executor/issue/remembered_graphs.h"
#include "tests/server/executor/issue/gated_queues_fixture.h"

namespace tally::server {

// Passes on to the software driver. One at a time: the driver's functions take no state of ours.
struct WatchedDriver {
  static inline DriverTable real;
  static inline int num_launches, num_graph_launches, num_executables, num_updates, num_records;
  // What the next call of each returns instead of being made.
  static inline CUresult refuse_instantiation, refuse_update, refuse_graph_launch;
  // What the device's clock shows; how long a launch and a graph take on it. Zero: times are the software driver's.
  static inline int64_t now_ns, launch_ns, graph_ns;
  static inline std::map<CUevent, int64_t> recorded_at;

  static void Watch(DriverTable& driver) {
    real = driver;
    num_launches = num_graph_launches = num_executables = num_updates = num_records = 0;
    refuse_instantiation = refuse_update = refuse_graph_launch = CUDA_SUCCESS;
    now_ns = launch_ns = graph_ns = 0;
    recorded_at.clear();
    driver.cuLaunchKernel = [](CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra) {
      ++num_launches;
      now_ns += launch_ns;
      return real.cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
    };
    driver.cuGraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
      if (const CUresult r = std::exchange(refuse_instantiation, CUDA_SUCCESS); r != CUDA_SUCCESS) return r;
      ++num_executables;
      return real.cuGraphInstantiateWithFlags(exec, graph, flags);
    };
    driver.cuGraphExecDestroy = [](CUgraphExec exec) {
      --num_executables;
      return real.cuGraphExecDestroy(exec);
    };
    driver.cuGraphExecKernelNodeSetParams_v2 = [](CUgraphExec exec, CUgraphNode node,
                                                  const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
      if (const CUresult r = std::exchange(refuse_update, CUDA_SUCCESS); r != CUDA_SUCCESS) return r;
      ++num_updates;
      return real.cuGraphExecKernelNodeSetParams_v2(exec, node, parameters);
    };
    driver.cuGraphLaunch = [](CUgraphExec exec, CUstream stream) {
      if (const CUresult r = std::exchange(refuse_graph_launch, CUDA_SUCCESS); r != CUDA_SUCCESS) return r;
      ++num_graph_launches;
      now_ns += graph_ns;
      return real.cuGraphLaunch(exec, stream);
    };
    driver.cuEventRecord = [](CUevent event, CUstream stream) {
      ++num_records;
      recorded_at[event] = now_ns;
      return real.cuEventRecord(event, stream);
    };
    driver.cuEventElapsedTime = [](float* milliseconds, CUevent begin, CUevent end) {
      *milliseconds = static_cast<float>(recorded_at[end] - recorded_at[begin]) / 1e6f;
      return CUDA_SUCCESS;
    };
  }
};

class CountingAdmission final : public Admission {
 public:
  DispatchPass BeforeDispatch(const DispatchPlace& place, const scheduler::LaunchAsked& asked) override {
    ++num_asked;
    last_asked = asked;
    if (!place.tenant->has_left()) ++num_inside;
    return {.may_go = !place.tenant->has_left()};
  }
  void AfterDispatch(const DispatchPlace&, const DispatchPass&) override { --num_inside; }
  int num_asked = 0;
  int num_inside = 0;
  scheduler::LaunchAsked last_asked;
};

class RememberedGraphsTest : public SimDeviceTest {
 protected:
  static constexpr size_t kBuffers = 10;

  void SetUp() override {
    SimDeviceTest::SetUp();
    WatchedDriver::Watch(driver_);
    kernel_ = KernelOf(Function(kStep, "step"));
    stream_.real = Stream();
    for (size_t i = 0; i < kBuffers; ++i) {
      memory_.push_back(ZeroedMemory(kWords * 4));
      expected_.emplace_back(kWords);
    }
    graphs_.emplace(driver_, nullptr);
  }
  void TearDown() override {
    graphs_.reset();
    EXPECT_EQ(WatchedDriver::num_executables, 0);
    EXPECT_EQ(admission_.num_inside, 0);
    SimDeviceTest::TearDown();
  }

  static Kernel KernelOf(CUfunction function) {
    Kernel kernel;
    kernel.function = function;
    kernel.layout = {{0, 8}, {8, 8}, {16, 4}, {20, 4}};
    kernel.parameter_bytes = sizeof(StepParameters);
    return kernel;
  }

  // One step: which buffers, which number.
  struct Step {
    size_t out = 0, in = 0;
    uint32_t addend = 0;
    uint32_t rounds = 20;
    uint32_t num_blocks = kBlocks;
    uint32_t num_threads = kThreads;
  };
  struct Batch {
    scheduler::WindowShape shape;
    std::vector<PendingLaunch> launches;
  };
  PendingLaunch LaunchOf(const Step& step) {
    const StepParameters parameters{memory_[step.out], memory_[step.in], step.addend, step.rounds};
    PendingLaunch launch;
    launch.kernel = &kernel_;
    launch.shape.grid = {step.num_blocks, 1, 1};
    launch.shape.block = {step.num_threads, 1, 1};
    launch.parameters.Assign(std::as_bytes(std::span(&parameters, 1)));
    launch.parameter_bytes = sizeof(parameters);
    launch.owner = &owner_;
    launch.stream = &stream_;
    return launch;
  }
  Batch BatchOf(const std::vector<Step>& steps) {
    Batch batch;
    scheduler::Window window;
    for (const Step& step : steps) {
      const std::vector<scheduler::Access> accesses = {AccessOf(step.out, scheduler::AccessKind::kReadWrite),
                                                       AccessOf(step.in, scheduler::AccessKind::kRead)};
      batch.shape.Add(*window.Admit(accesses), 1, 1);
      batch.launches.push_back(LaunchOf(step));
    }
    return batch;
  }
  scheduler::Access AccessOf(size_t buffer, scheduler::AccessKind kind) const {
    return {*scheduler::Box::Range(memory_[buffer], kWords * 4), kind};
  }

  CUresult Issue(Batch& batch) {
    return graphs_->Issue(batch.shape, batch.launches, [](PendingLaunch& launch) { return LaunchOriginal(launch); });
  }
  CUresult Issue(const std::vector<Step>& steps) {
    Batch batch = BatchOf(steps);
    return Issue(batch);
  }
  // As above, and what comes of it.
  void Run(const std::vector<Step>& steps) {
    ASSERT_EQ(Issue(steps), CUDA_SUCCESS);
    for (const Step& step : steps) Expect(step);
  }
  void Expect(const Step& step) {
    Words& out = expected_[step.out];
    const Words in = expected_[step.in];
    for (uint32_t i = 0; i < step.num_blocks * step.num_threads; ++i) out[i] = out[i] * 5 + in[i] + step.addend;
  }
  void ExpectMemory() {
    ASSERT_EQ(driver_.cuStreamSynchronize(stream_.real), CUDA_SUCCESS);
    for (size_t i = 0; i < kBuffers; ++i) {
      Words found(kWords);
      ASSERT_EQ(driver_.cuMemcpyDtoHAsync_v2(found.data(), memory_[i], kWords * 4, stream_.real), CUDA_SUCCESS);
      ASSERT_EQ(driver_.cuStreamSynchronize(stream_.real), CUDA_SUCCESS);
      ASSERT_EQ(found, expected_[i]) << i;
    }
  }
  const RememberedGraphs::Counts& counts() const { return graphs_->counts(); }

  Kernel kernel_;
  CountingAdmission admission_;
  AdmissionTenant tenant_;
  const bool keeps_kernels_ = false;
  std::atomic<bool> is_high_priority_{false};
  std::shared_ptr<RunsOwner> runs_owner_;
  PreemptibilityMeter preemptibility_{nullptr, nullptr};
  FigureCounters counters_;
  TraceSwitch trace_;
  std::unique_ptr<ShareGate> share_;
  LaunchOwner owner_{driver_,     admission_,      tenant_,   nullptr, keeps_kernels_, is_high_priority_,
                     runs_owner_, preemptibility_, counters_, trace_,  share_};
  LaunchStream stream_;
  std::vector<CUdeviceptr> memory_;
  std::vector<Words> expected_;
  std::optional<RememberedGraphs> graphs_;
};

}  // namespace tally::server
