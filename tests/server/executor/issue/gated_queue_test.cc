#include "server/executor/issue/gated_queue.h"

#include "base/check.h"
#include "tests/server/executor/issue/gated_queues_fixture.h"

namespace tally::server {
namespace {

using GatedQueueTest = GatedQueuesTest;

// It had looked before the stop; the watermark that is read first does not have it yet.
TEST_F(GatedQueueTest, ABlockThatRunsOnAfterTheStopIsNotRepeated) {
  static std::atomic<int> num_reads;
  static decltype(DriverTable::cuMemcpyDtoHAsync_v2) copy;
  static CUdeviceptr earlier;
  num_reads = 0;
  copy = driver_.cuMemcpyDtoHAsync_v2;
  earlier = ZeroedMemory(sizeof(device::GateRecord));
  driver_.cuMemcpyDtoHAsync_v2 = [](void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    const bool is_first = bytes == sizeof(device::GateRecord) && num_reads++ == 0;
    return copy(to, is_first ? earlier : from, bytes, stream);
  };
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto queue = queues_->Open(stream, nullptr);
  ASSERT_EQ(Put(*queue, Step({out, in, 7, 400'000}, 1)), CUDA_SUCCESS);
  Await([&] { return Read(out) != Words(kWords); });
  watch_.SetClosed(true);
  Await([&] { return HasEnded(stream); });
  ASSERT_NE(Read(out).back(), 7u) << "all had run: nothing was stopped";
  watch_.SetClosed(false);
  ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  Words expected(kWords);
  StepOnHost(expected, Words(kWords), 7);
  EXPECT_EQ(Read(out), expected);
  EXPECT_GE(num_reads, 3) << "twice the same, behind the one that was out of date";
}

// Its blocks may wait for one another: some of them alone would wait for good.
TEST_F(GatedQueueTest, AWholeLaunchBehindAPromiseBeyondTheQueueRunsWhole) {
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto queue = queues_->Open(stream, nullptr);
  Words expected(kWords);
  // Promises blocks up to number 179, of which it has 120 itself.
  ASSERT_EQ(Put(*queue, Step({out, in, 7}, kBlocks * 3 / 4)), CUDA_SUCCESS);
  StepOnHost(expected, Words(kWords), 7);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  const CUdeviceptr word = Block(stream);
  GatedStep whole = Step({out, in, 9}, 1);
  whole.form.is_whole = true;
  ASSERT_EQ(Put(*queue, std::move(whole)), CUDA_SUCCESS);
  StopThenRelease(word);
  Await([&] { return HasEnded(stream); });
  EXPECT_EQ(Read(out), expected) << "none of it was promised";
  watch_.SetClosed(false);
  ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  StepOnHost(expected, Words(kWords), 9);
  EXPECT_EQ(Read(out), expected);
}

// The program sees what it has set, and its earlier launch goes on as it was made.
TEST_F(GatedQueueTest, ARepetitionHasTheSharedMemoryThatTheLaunchHad) {
  constexpr auto kAllowed = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  constexpr int kMuch = 100 << 10, kLittle = 1 << 10;
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto queue = queues_->Open(stream, nullptr);
  Words expected(kWords);
  const CUdeviceptr word = Block(stream);
  ASSERT_EQ(driver_.cuFuncSetAttribute(function_, kAllowed, kMuch), CUDA_SUCCESS);
  GatedStep step = Step({out, in, 7}, 1);
  step.launch.shape.shared_bytes = kMuch;
  ASSERT_EQ(Put(*queue, std::move(step)), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuFuncSetAttribute(function_, kAllowed, kLittle), CUDA_SUCCESS);
  StopThenRelease(word);
  Await([&] { return HasEnded(stream); });
  watch_.SetClosed(false);
  Await([&] {
    CHECK(num_failures_ == 0);  // nothing would ever end
    return queues_->counts().num_relaunches == 1;
  });
  ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  StepOnHost(expected, Words(kWords), 7);
  EXPECT_EQ(Read(out), expected);
  int allowed = 0;
  EXPECT_EQ(driver_.cuFuncGetAttribute(&allowed, kAllowed, function_), CUDA_SUCCESS);
  EXPECT_EQ(allowed, kLittle);
}

TEST_F(GatedQueueTest, AStopBeforeAnyBlockBeganIsNoMeasurement) {
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  const auto owner = std::make_shared<RunsOwner>();
  std::atomic<int> num_told{0};
  auto queue = queues_->Open(stream, owner);
  const CUdeviceptr word = Block(stream);
  GatedStep step = Step({out, in, 7}, 1);
  step.launch.on_turnaround = [&](std::chrono::nanoseconds) { ++num_told; };
  ASSERT_EQ(Put(*queue, std::move(step)), CUDA_SUCCESS);
  StopThenRelease(word);
  Await([&] { return HasEnded(stream); });
  watch_.SetClosed(false);
  ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  queue.reset();
  queues_.reset();
  EXPECT_EQ(num_told, 0);
  EXPECT_EQ(owner->figures["timed_yields"], 0u);
  EXPECT_EQ(owner->figures["yields"], 1u);
}

}  // namespace
}  // namespace tally::server
