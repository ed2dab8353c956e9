// Gated queues on the software device, and a kernel whose launches show whether each ran once and in order.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ptx-transforms/transform.h"
#include "server/executor/issue/gated_queues.h"
#include "tests/server/executor/fakes/scripted_watch.h"
#include "tests/server/executor/issue/sim_device.h"
#include "tests/support/still_clock.h"

namespace tally::server {

// Thread i of the grid: out[i] = out[i] * 5 + in[i] + addend, after some work. Neither idempotent nor commutative.
inline constexpr const char* kStep = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry step(.param .u64 out, .param .u64 in, .param .u32 addend, .param .u32 rounds)
{
  .reg .b64 %rd<6>;
  .reg .b32 %r<12>;
  .reg .pred %p<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  ld.param.u32 %r1, [addend];
  ld.param.u32 %r8, [rounds];
  mov.u32 %r2, %ctaid.y;
  mov.u32 %r3, %nctaid.x;
  mov.u32 %r4, %ctaid.x;
  mad.lo.u32 %r2, %r2, %r3, %r4;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r2, %r2, %r3, %r4;
  mul.wide.u32 %rd3, %r2, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.u32 %r5, [%rd4];
  ld.global.u32 %r6, [%rd5];
  mov.u32 %r7, 0;
WORK:
  add.u32 %r7, %r7, 1;
  setp.lt.u32 %p1, %r7, %r8;
  @%p1 bra WORK;
  mad.lo.u32 %r5, %r5, 5, %r6;
  add.u32 %r5, %r5, %r1;
  st.global.u32 [%rd4], %r5;
  ret;
}
)";
struct StepParameters {
  CUdeviceptr out = 0;
  CUdeviceptr in = 0;
  uint32_t addend = 0;
  uint32_t rounds = 20;
};
inline constexpr uint32_t kThreads = 4;
inline constexpr uint32_t kBlocks = 120;
inline constexpr uint32_t kWords = kThreads * kBlocks;
using Words = std::vector<uint32_t>;

inline void StepOnHost(Words& out, const Words& in, uint32_t addend) {
  for (uint32_t i = 0; i < kWords; ++i) out[i] = out[i] * 5 + in[i] + addend;
}

struct GatedStep {
  GatedForm form;
  PendingLaunch launch;
};
inline CUresult Put(GatedQueues::Stream& queue, GatedStep step) {
  return queue.Launch(step.form, std::move(step.launch));
}

class GatedQueuesTest : public SimDeviceTest {
 protected:
  void SetUp() override {
    SimDeviceTest::SetUp();
    ptx_transforms::TransformOptions options;
    options.pipelines = {{"gate_entry"}};
    options.placement = ptx_transforms::Placement::kReplace;
    const auto gated = ptx_transforms::TransformText(kStep, options);
    ASSERT_TRUE(gated && gated->is_all_done());
    hidden_offset_ = gated->variants[0].hidden_parameter_offset;
    function_ = Function(gated->text, "step");
    Create(clock_);
  }
  void Create(const Clock& clock) {
    queues_ = GatedQueues::Create(
        driver_, *completions_, context_, 0, &watch_, [&](CUresult) { ++num_failures_; }, clock);
    ASSERT_NE(queues_, nullptr);
  }
  // With `still_clock_`, beside high-priority work of the same context.
  void CreateBesideHighPriorityWork() {
    watch_.is_one_of_them = true;
    Create(still_clock_);
  }
  void TearDown() override {
    queues_.reset();
    SimDeviceTest::TearDown();
    EXPECT_EQ(num_failures_, 0);
  }

  GatedStep Step(const StepParameters& parameters, uint32_t chunk) {
    GatedStep step;
    step.form.function = function_;
    step.form.hidden_offset = hidden_offset_;
    step.form.chunk = chunk;
    step.launch.shape.grid = {kBlocks / 2, 2, 1};
    step.launch.shape.block = {kThreads, 1, 1};
    step.launch.parameters.Assign(std::as_bytes(std::span(&parameters, 1)));
    return step;
  }
  // From another stream's point of view.
  Words Read(CUdeviceptr memory) {
    Words values(kWords);
    EXPECT_EQ(driver_.cuMemcpyDtoHAsync_v2(values.data(), memory, kWords * 4, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(driver_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    return values;
  }
  // Keeps what is put on the stream next from running, until Release.
  CUdeviceptr Block(CUstream stream) {
    const CUdeviceptr word = ZeroedMemory(4);
    EXPECT_EQ(driver_.cuStreamWaitValue32_v2(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
    return word;
  }
  void Release(CUdeviceptr word) {
    EXPECT_EQ(driver_.cuMemsetD32Async(word, 1, 1, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(driver_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  }
  // So many steps, each with its number as the addend; what they make of `expected`.
  void LaunchSteps(GatedQueues::Stream& queue, CUdeviceptr out, CUdeviceptr in, uint32_t count, Words& expected) {
    for (uint32_t i = 0; i < count; ++i) {
      ASSERT_EQ(Put(queue, Step({out, in, i}, 16)), CUDA_SUCCESS);
      StepOnHost(expected, Words(kWords), i);
    }
  }
  // The only queue is stopped before anything behind `word` has run.
  void StopThenRelease(CUdeviceptr word) {
    watch_.SetClosed(true);
    Await([&] { return queues_->counts().num_stops == 1; });
    Release(word);
  }

  ScriptedWatch watch_;
  const SteadyClock clock_;
  StillClock still_clock_;
  CUfunction function_ = nullptr;
  size_t hidden_offset_ = 0;
  std::unique_ptr<GatedQueues> queues_;
  std::atomic<int> num_failures_{0};
};

}  // namespace tally::server
