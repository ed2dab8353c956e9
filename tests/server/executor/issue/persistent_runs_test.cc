#include "server/executor/issue/persistent_runs.h"

#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "tests/server/executor/fakes/scripted_watch.h"
#include "tests/server/executor/issue/sim_device.h"

namespace tally::server {
namespace {

// Persistent blocks of one thread that obey proto/device/variant_abi.h by hand; block i adds 1 to out[i] after some
// work.
constexpr const char* kPersistentBlocks = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry count(.param .u64 out, .param .align 8 .b8 hidden[32])
{
  .reg .b64 %rd<6>;
  .reg .b32 %r<10>;
  .reg .pred %p<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [hidden];
  ld.param.u64 %rd3, [hidden+8];
  ld.param.u32 %r1, [hidden+16];
  ld.param.u32 %r2, [hidden+20];
  ld.param.u32 %r3, [hidden+24];
  mul.lo.u32 %r4, %r1, %r2;
  mul.lo.u32 %r4, %r4, %r3;
  mov.u32 %r5, 0;
NEXT:
  ld.volatile.global.u32 %r6, [%rd3];
  setp.ne.u32 %p1, %r6, 0;
  @%p1 bra DONE;
  atom.global.add.u32 %r7, [%rd2], 1;
  setp.ge.u32 %p2, %r7, %r4;
  @%p2 bra DONE;
  mov.u32 %r8, 0;
WORK:
  add.u32 %r8, %r8, 1;
  setp.lt.u32 %p3, %r8, 300;
  @%p3 bra WORK;
  mul.wide.u32 %rd4, %r7, 4;
  add.s64 %rd5, %rd1, %rd4;
  atom.global.add.u32 %r9, [%rd5], 1;
  add.u32 %r5, %r5, 1;
  bra NEXT;
DONE:
  membar.sys;
  atom.global.add.u32 %r9, [%rd2+4], %r5;
  ret;
}
)";
constexpr uint32_t kBlocks = 600;

class PersistentRunsTest : public SimDeviceTest {
 protected:
  void SetUp() override {
    SimDeviceTest::SetUp();
    function_ = Function(kPersistentBlocks, "count");
    Create(/*may_spin=*/false);
  }
  void Create(bool may_spin) {
    runs_ = PersistentRuns::Create(
        driver_, *completions_, context_, 0, &watch_, [&](CUresult) { ++num_failures_; }, clock_, may_spin);
    ASSERT_NE(runs_, nullptr);
  }
  void TearDown() override {
    runs_.reset();
    SimDeviceTest::TearDown();
    EXPECT_EQ(num_failures_, 0);
  }

  static PendingLaunch LaunchOn(CUdeviceptr out) {
    PendingLaunch launch;
    launch.shape.grid = {kBlocks / 6, 3, 2};
    launch.shape.block = {1, 1, 1};
    launch.parameters.Assign(std::as_bytes(std::span(&out, 1)));
    return launch;
  }
  CUresult Put(CUstream stream, PendingLaunch&& launch, std::shared_ptr<RunsOwner> owner = nullptr) {
    return runs_->Launch(stream, {function_, 3, 8, 0}, std::move(owner), std::move(launch));
  }
  // Everything up to here of the stream, seen from another stream's point of view.
  std::vector<uint32_t> Read(CUdeviceptr memory) {
    std::vector<uint32_t> values(kBlocks);
    EXPECT_EQ(driver_.cuMemcpyDtoHAsync_v2(values.data(), memory, kBlocks * 4, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(driver_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    return values;
  }

  ScriptedWatch watch_;
  const SteadyClock clock_;
  CUfunction function_ = nullptr;
  std::unique_ptr<PersistentRuns> runs_;
  std::atomic<int> num_failures_{0};
};

TEST_F(PersistentRunsTest, RunsEveryBlockOnce) {
  const CUdeviceptr out = ZeroedMemory(kBlocks * 4);
  CUstream stream = Stream();
  ASSERT_EQ(Put(stream, LaunchOn(out)), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(out), std::vector<uint32_t>(kBlocks, 1));
  EXPECT_EQ(runs_->counts().num_launches, 1u);
  EXPECT_EQ(runs_->counts().num_yields, 0u);
}

TEST_F(PersistentRunsTest, WhatIsLaunchedWhileTheFlagIsUpStartsWhenItComesDown) {
  const CUdeviceptr out = ZeroedMemory(kBlocks * 4), busy = ZeroedMemory(kBlocks * 4);
  CUstream stream = Stream(), other = Stream();
  // The flag goes up only for launches in flight: one that the stream holds back.
  const CUdeviceptr word = ZeroedMemory(4);
  ASSERT_EQ(driver_.cuStreamWaitValue32_v2(other, word, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  ASSERT_EQ(Put(other, LaunchOn(busy)), CUDA_SUCCESS);
  watch_.SetClosed(true);
  Await([&] { return runs_->counts().num_yields == 1; });
  ASSERT_EQ(Put(stream, LaunchOn(out)), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(HasEnded(stream));
  EXPECT_EQ(Read(out), std::vector<uint32_t>(kBlocks, 0)) << "ran although it was asked to yield";
  watch_.SetClosed(false);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(out), std::vector<uint32_t>(kBlocks, 1));
  ASSERT_EQ(driver_.cuMemsetD32Async(word, 1, 1, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(Read(busy), std::vector<uint32_t>(kBlocks, 1));
}

// How long it waited for its turn is not how long it takes to stop.
TEST_F(PersistentRunsTest, AYieldBeforeAnyBlockBeganIsNoMeasurement) {
  const CUdeviceptr out = ZeroedMemory(kBlocks * 4), held = ZeroedMemory(kBlocks * 4), word = ZeroedMemory(4);
  CUstream stream = Stream(), held_stream = Stream();
  const auto owner = std::make_shared<RunsOwner>();
  std::atomic<int> num_told{0};
  ASSERT_EQ(driver_.cuStreamWaitValue32_v2(held_stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  PendingLaunch launch = LaunchOn(held);
  launch.on_turnaround = [&](std::chrono::nanoseconds) { ++num_told; };
  ASSERT_EQ(Put(held_stream, std::move(launch), owner), CUDA_SUCCESS);
  watch_.SetClosed(true);
  Await([&] { return runs_->counts().num_yields == 1; });
  ASSERT_EQ(Put(stream, LaunchOn(out)), CUDA_SUCCESS);
  watch_.SetClosed(false);
  // It can only end once nobody looks at the other one any more.
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuMemsetD32Async(word, 1, 1, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamSynchronize(held_stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(held), std::vector<uint32_t>(kBlocks, 1));
  runs_.reset();
  EXPECT_EQ(num_told, 0);
  EXPECT_EQ(owner->figures["timed_yields"], 0u);
}

// With a watching thread that sleeps between looks, and with one that polls.
class WatchedRunsTest : public PersistentRunsTest, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    PersistentRunsTest::SetUp();
    Create(GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(, WatchedRunsTest, testing::Bool(),
                         [](const auto& each) { return each.param ? "Polling" : "Sleeping"; });

// High-priority work comes and goes at random while two streams launch; every snapshot that a stream takes between two
// launches must show exactly the launches before it.
TEST_P(WatchedRunsTest, NothingOvertakesALaunchThatYielded) {
  constexpr uint32_t kLaunches = 25;
  const std::array<CUstream, 2> streams = {Stream(), Stream()};
  std::array<CUdeviceptr, 2> outs{}, snapshots{};
  const auto owner = std::make_shared<RunsOwner>();
  std::atomic<uint64_t> num_turnarounds{0};
  std::atomic<int64_t> sum_of_turnarounds{0};
  for (size_t i = 0; i < 2; ++i) {
    outs[i] = ZeroedMemory(kBlocks * 4);
    snapshots[i] = ZeroedMemory(kBlocks * 4 * kLaunches);
  }
  std::atomic<bool> is_over{false};
  std::thread priority([&] {
    std::mt19937 random(11);
    while (!is_over) {
      watch_.SetClosed(true);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
      watch_.SetClosed(false);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    }
  });
  for (uint32_t k = 0; k < kLaunches; ++k) {
    for (size_t i = 0; i < 2; ++i) {
      PendingLaunch launch = LaunchOn(outs[i]);
      launch.on_turnaround = [&](std::chrono::nanoseconds turnaround) {
        ++num_turnarounds;
        sum_of_turnarounds += turnaround.count();
      };
      ASSERT_EQ(Put(streams[i], std::move(launch), owner), CUDA_SUCCESS);
      ASSERT_EQ(driver_.cuMemcpyDtoDAsync_v2(snapshots[i] + k * kBlocks * 4, outs[i], kBlocks * 4, streams[i]),
                CUDA_SUCCESS);
    }
  }
  for (CUstream stream : streams) ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  is_over = true;
  priority.join();
  for (size_t i = 0; i < 2; ++i) {
    for (uint32_t k = 0; k < kLaunches; ++k) {
      ASSERT_EQ(Read(snapshots[i] + k * kBlocks * 4), std::vector<uint32_t>(kBlocks, k + 1)) << i << " " << k;
    }
  }
  EXPECT_EQ(runs_->counts().num_launches, 2 * kLaunches);
  EXPECT_GT(runs_->counts().num_yields, 0u);
  EXPECT_GT(runs_->counts().num_resumes, 0u);
  EXPECT_GT(num_turnarounds, 0u);
  // Where the time went is all of it.
  runs_.reset();
  const FigureCounters& figures = owner->figures;
  EXPECT_EQ(figures["timed_yields"], num_turnarounds);
  EXPECT_EQ(figures["yield_seen_ns"] + figures["yield_written_ns"] + figures["yield_left_ns"], sum_of_turnarounds);
  EXPECT_LE(figures["yield_seen_ns"], sum_of_turnarounds) << "negative";
  EXPECT_GT(figures["yield_written_ns"], 0u);
}

TEST_F(PersistentRunsTest, AFunctionIsWaitedForUntilItsLaunchesAreComplete) {
  const CUdeviceptr out = ZeroedMemory(kBlocks * 4);
  CUstream stream = Stream();
  ASSERT_EQ(Put(stream, LaunchOn(out)), CUDA_SUCCESS);
  watch_.SetClosed(true);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    watch_.SetClosed(false);
  });
  runs_->AwaitFunction(function_);
  EXPECT_EQ(Read(out), std::vector<uint32_t>(kBlocks, 1));
  opener.join();
}

// A launch of an owner, which has yielded because admission is closed and stays so.
class OwnedRunsTest : public PersistentRunsTest {
 protected:
  void SetUp() override {
    PersistentRunsTest::SetUp();
    out_ = ZeroedMemory(kBlocks * 4);
    word_ = ZeroedMemory(4);
    // The flag goes up only for launches in flight: one that its stream holds back.
    ASSERT_EQ(driver_.cuStreamWaitValue32_v2(other_ = Stream(), word_, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
    ASSERT_EQ(Put(other_, LaunchOn(ZeroedMemory(kBlocks * 4))), CUDA_SUCCESS);
    watch_.SetClosed(true);
    Await([&] { return runs_->counts().num_yields == 1; });
    ASSERT_EQ(Put(stream_ = Stream(), LaunchOn(out_), owner_), CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ASSERT_FALSE(HasEnded(stream_));
  }
  void TearDown() override {
    driver_.cuMemsetD32Async(word_, 1, 1, nullptr);
    watch_.SetClosed(false);
    driver_.cuStreamSynchronize(other_);
    PersistentRunsTest::TearDown();
  }
  const std::shared_ptr<RunsOwner> owner_ = std::make_shared<RunsOwner>();
  CUdeviceptr out_ = 0, word_ = 0;
  CUstream stream_ = nullptr, other_ = nullptr;
};

TEST_F(OwnedRunsTest, OfAClientThatHasLeftNothingGoesOnAndNothingIsWaitedFor) {
  owner_->has_left = true;
  Await([&] { return HasEnded(stream_); });
  EXPECT_EQ(Read(out_), std::vector<uint32_t>(kBlocks, 0)) << "it ran while the gate was closed";
  EXPECT_EQ(owner_->figures["yields"], 0u);
}

TEST_F(OwnedRunsTest, OfOneThatHasBecomeHighPriorityEverythingGoesOn) {
  owner_->is_high_priority = true;
  Await([&] { return HasEnded(stream_); });
  EXPECT_EQ(Read(out_), std::vector<uint32_t>(kBlocks, 1));
  EXPECT_EQ(owner_->figures["yields"], 1u);
}

TEST_F(PersistentRunsTest, ControlBlocksAreUsedAgain) {
  const CUdeviceptr out = ZeroedMemory(kBlocks * 4);
  CUstream stream = Stream();
  constexpr uint32_t kLaunches = 3 * ControlSlots::kSlotsPerSlab;
  for (uint32_t i = 0; i < kLaunches; ++i) {
    PendingLaunch launch = LaunchOn(out);
    launch.shape.grid = {2, 1, 1};
    ASSERT_EQ(Put(stream, std::move(launch)), CUDA_SUCCESS);
  }
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  const auto values = Read(out);
  EXPECT_EQ(values[0], kLaunches);
  EXPECT_EQ(values[1], kLaunches);
  EXPECT_EQ(values[2], 0u);
}

// Nothing is allocated while launches are in flight: that might wait for one that has yielded.
TEST_F(PersistentRunsTest, MoreThanCanBeCountedAreRefused) {
  constexpr uint32_t kMost = ControlSlots::kNumSlabs * ControlSlots::kSlotsPerSlab;
  const CUdeviceptr out = ZeroedMemory(kBlocks * 4);
  CUstream stream = Stream();
  CUdeviceptr word = ZeroedMemory(4);
  ASSERT_EQ(driver_.cuStreamWaitValue32_v2(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  const auto small = [&] {
    PendingLaunch launch = LaunchOn(out);
    launch.shape.grid = {1, 1, 1};
    return launch;
  };
  for (uint32_t i = 0; i < kMost; ++i) ASSERT_EQ(Put(stream, small()), CUDA_SUCCESS);
  PendingLaunch refused = small();
  EXPECT_EQ(Put(stream, std::move(refused)), CUDA_ERROR_NOT_READY);
  CUstream other = Stream();
  ASSERT_EQ(driver_.cuStreamWriteValue32_v2(other, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(out)[0], kMost);
  // Whoever is refused has it still.
  Await([&] { return Put(stream, std::move(refused)) == CUDA_SUCCESS; });
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(out)[0], kMost + 1);
}

TEST(RunsOwnerTest, SaysOnceWhoseBlocksKeepAServiceWaiting) {
  const auto said = [](RunsOwner& owner) {
    testing::internal::CaptureStderr();
    owner.NoteLongBlocks("wgrad", std::chrono::microseconds(2940));
    return testing::internal::GetCapturedStderr();
  };
  RunsOwner nobodys, owner;
  std::vector<std::pair<std::string, std::chrono::nanoseconds>> told;
  nobodys.on_long_blocks = owner.on_long_blocks = [&](auto& kernel, auto left) { told.emplace_back(kernel, left); };
  EXPECT_EQ(said(nobodys), "") << "it has a context of its own";
  EXPECT_EQ(nobodys.figures["has_long_blocks"], 0u);
  owner.name = "session 7 (train.py)";
  EXPECT_THAT(said(owner), testing::HasSubstr("session 7 (train.py): blocks of kernel wgrad ran on for 2.9 ms"));
  EXPECT_EQ(said(owner), "");
  EXPECT_EQ(owner.figures["has_long_blocks"], 1u);
  EXPECT_THAT(told, testing::ElementsAre(testing::Pair("wgrad", std::chrono::microseconds(2940))));
}

}  // namespace
}  // namespace tally::server
