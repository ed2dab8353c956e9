#include "server/executor/issue/gated_queues.h"

#include <numeric>
#include <random>

#include "tests/server/executor/issue/gated_queues_fixture.h"

namespace tally::server {
namespace {

TEST_F(GatedQueuesTest, RunsLaunchesInOrder) {
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto queue = queues_->Open(stream, nullptr);
  const CUdeviceptr word = Block(stream);  // a queue that has ended needs no marker
  Words expected(kWords);
  LaunchSteps(*queue, out, in, 40, expected);
  ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
  Release(word);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(out), expected);
  EXPECT_EQ(queues_->counts().num_launches, 40u);
  EXPECT_EQ(queues_->counts().num_markers, 1u);
  EXPECT_EQ(queues_->counts().num_relaunches, 0u);
}

// One store empties the whole queue; what was put behind it waits, and everything runs later, once and in order.
TEST_F(GatedQueuesTest, AStoppedQueueRunsNothingUntilItMay) {
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4), copy = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto queue = queues_->Open(stream, nullptr);
  const CUdeviceptr word = Block(stream);
  Words expected(kWords), zero(kWords);
  LaunchSteps(*queue, out, in, 20, expected);
  StopThenRelease(word);
  Await([&] { return HasEnded(stream); });  // as nothing was sealed, it has drained
  EXPECT_EQ(Read(out), zero);
  ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuMemcpyDtoDAsync_v2(copy, out, kWords * 4, stream), CUDA_SUCCESS);
  for (uint32_t i = 0; i < 20; ++i) ASSERT_EQ(Put(*queue, Step({out, in, i + 20}, 16)), CUDA_SUCCESS);
  ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(HasEnded(stream));
  EXPECT_EQ(Read(out), zero);
  watch_.SetClosed(false);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(copy), expected);
  for (uint32_t i = 0; i < 20; ++i) StepOnHost(expected, zero, i + 20);
  EXPECT_EQ(Read(out), expected);
  EXPECT_EQ(queues_->counts().num_relaunches, 20u) << "those behind the copy had not been reached";
}

// Streams that wait keep GPU channels, and what would end their waiting needs one, too.
TEST_F(GatedQueuesTest, SomeQueuesRunOnWhenTooManyStreamsWouldWait) {
  struct Channel {
    CUstream stream = nullptr;
    std::unique_ptr<GatedQueues::Stream> queue;
    CUdeviceptr out = 0, in = 0, word = 0;
  };
  std::vector<Channel> channels(GatedQueues::kMostWaiting + 4);
  Words expected(kWords), zero(kWords);
  StepOnHost(expected, zero, 7);
  for (Channel& channel : channels) {
    channel.stream = Stream();
    channel.queue = queues_->Open(channel.stream, nullptr);
    channel.out = ZeroedMemory(kWords * 4);
    channel.in = ZeroedMemory(kWords * 4);
  }
  for (Channel& channel : channels) {
    channel.word = Block(channel.stream);
    ASSERT_EQ(Put(*channel.queue, Step({channel.out, channel.in, 7}, 16)), CUDA_SUCCESS);
    ASSERT_EQ(channel.queue->Seal(), CUDA_SUCCESS);
  }
  watch_.SetClosed(true);
  Await([&] { return queues_->counts().num_stops == GatedQueues::kMostWaiting; });
  for (Channel& channel : channels) Release(channel.word);
  const auto num_ended = [&] {
    return std::ranges::count_if(channels, [&](Channel& channel) { return HasEnded(channel.stream); });
  };
  Await([&] { return num_ended() == 4; });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(num_ended(), 4);
  EXPECT_EQ(queues_->counts().num_stops, GatedQueues::kMostWaiting);
  watch_.SetClosed(false);
  for (Channel& channel : channels) {
    ASSERT_EQ(driver_.cuStreamSynchronize(channel.stream), CUDA_SUCCESS);
    EXPECT_EQ(Read(channel.out), expected);
  }
}

// While a call may wait for the whole context nothing is stopped, and it begins when nothing is.
TEST_F(GatedQueuesTest, NothingIsStoppedDuringACallThatMayWaitForTheContext) {
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto queue = queues_->Open(stream, nullptr);
  Words expected(kWords), zero(kWords);
  StepOnHost(expected, zero, 3);
  {
    const GatedQueues::ContextCall call(*queues_);
    watch_.SetClosed(true);
    ASSERT_EQ(Put(*queue, Step({out, in, 3}, 16)), CUDA_SUCCESS);
    ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
    ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(Read(out), expected);
    EXPECT_EQ(queues_->counts().num_stops, 0u);
    watch_.SetClosed(false);
  }
  // What the watching thread had seen before is over by then.
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const uint64_t num_stops = queues_->counts().num_stops;
  const CUdeviceptr word = Block(stream);
  ASSERT_EQ(Put(*queue, Step({out, in, 4}, 16)), CUDA_SUCCESS);
  StepOnHost(expected, zero, 4);
  watch_.SetClosed(true);
  Await([&] { return queues_->counts().num_stops == num_stops + 1; });
  Release(word);
  std::atomic<bool> has_begun{false};
  std::thread caller([&] {
    driver_.cuCtxSetCurrent(context_);
    const GatedQueues::ContextCall call(*queues_);
    has_begun = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(has_begun);
  queues_->BeginContextCall(/*is_urgent=*/true);  // lets it go on though the gate is closed
  caller.join();
  ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  queues_->EndContextCall();
  EXPECT_EQ(Read(out), expected);
  watch_.SetClosed(false);
}

// A chunk promises more blocks than there are: what is launched later must not count as run.
TEST_F(GatedQueuesTest, AChunkThatReachesBeyondTheQueueLosesNothing) {
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto queue = queues_->Open(stream, nullptr);
  Words expected(kWords), zero(kWords);
  for (uint32_t round = 0; round < 3; ++round) {
    ASSERT_EQ(Put(*queue, Step({out, in, round}, 16'384)), CUDA_SUCCESS);
    StepOnHost(expected, zero, round);
    ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
    ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
    // This one is promised already when the queue is stopped in front of it, so it runs all the same.
    const CUdeviceptr word = Block(stream);
    ASSERT_EQ(Put(*queue, Step({out, in, 50}, 1)), CUDA_SUCCESS);
    StepOnHost(expected, zero, 50);
    watch_.SetClosed(true);
    Await([&] { return queues_->counts().num_stops == round + 1; });
    Release(word);
    Await([&] { return Read(out) == expected; });
    watch_.SetClosed(false);
    // Opened again before or after it is launched: it must run.
    const auto is_open = [&] { return queues_->counts().num_reopened == round + 1; };
    if (round % 2 == 0) Await(is_open);
    ASSERT_EQ(Put(*queue, Step({out, in, 100}, 1)), CUDA_SUCCESS);
    ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
    ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
    StepOnHost(expected, zero, 100);
    EXPECT_EQ(Read(out), expected);
    Await(is_open);  // it may have run as promised before that
  }
}

// How long the queue took to leave is measured, and told to the launch in which it was stopped.
TEST_F(GatedQueuesTest, AStopInTheMiddleIsMeasured) {
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto owner = std::make_shared<RunsOwner>();
  auto queue = queues_->Open(stream, owner);
  std::atomic<int64_t> told_ns{0};
  std::atomic<int> num_told{0};
  for (int attempt = 0; num_told == 0 && attempt < 50; ++attempt) {
    const uint64_t num_before = queues_->counts().num_stops;
    for (int i = 0; i < 3; ++i) {
      GatedStep step = Step({out, in, 1, 20'000}, 1);
      step.launch.on_turnaround = [&](std::chrono::nanoseconds turnaround) {
        told_ns = turnaround.count();
        ++num_told;
      };
      ASSERT_EQ(Put(*queue, std::move(step)), CUDA_SUCCESS);
    }
    ASSERT_TRUE(queues_->OpenPhase());
    const auto phase = queues_->OpenPhase();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    watch_.SetClosed(true);
    Await([&] { return queues_->counts().num_stops > num_before || HasEnded(stream); });
    Await([&] { return !queues_->OpenPhase(); });  // also if everything had ended before it was stopped
    watch_.SetClosed(false);
    ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
    ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
    Await([&] { return queues_->OpenPhase().has_value(); });
    if (queues_->counts().num_stops > num_before) {
      EXPECT_NE(queues_->OpenPhase(), phase);
    }
  }
  ASSERT_EQ(num_told, 1);
  EXPECT_GT(told_ns, 0);
  control::SessionFigures figures{};
  owner->figures.AddTo(figures);
  const auto stops = figures.entries("stops");
  EXPECT_EQ(std::accumulate(stops.begin(), stops.end(), uint64_t{0}), 1u);
  EXPECT_EQ(figures["timed_yields"], 1u);
  EXPECT_LE(figures["stop_ns"], static_cast<uint64_t>(told_ns)) << "the announcement came before the store";
  EXPECT_GE(figures["resumed_launches"], 1u);
  EXPECT_GE(figures["resumed_blocks"], 1u);
  EXPECT_LT(figures["resumed_blocks"], 3 * kBlocks);
}

TEST_F(GatedQueuesTest, WhoBecomesHighPriorityGoesOnAtOnce) {
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto owner = std::make_shared<RunsOwner>();
  auto queue = queues_->Open(stream, owner);
  const CUdeviceptr word = Block(stream);
  ASSERT_EQ(Put(*queue, Step({out, in, 1}, 16)), CUDA_SUCCESS);
  ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
  StopThenRelease(word);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(HasEnded(stream));
  owner->is_high_priority = true;
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(out), Words(kWords, 1));
  watch_.SetClosed(false);
}

TEST_F(GatedQueuesTest, WhoIsHighPriorityIsNotStopped) {
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4), other = ZeroedMemory(kWords * 4);
  CUstream others = Stream(), stream = Stream();
  auto owner = std::make_shared<RunsOwner>();
  owner->is_high_priority = true;
  auto stopped = queues_->Open(others, nullptr), queue = queues_->Open(stream, owner);
  const CUdeviceptr word = Block(others);
  ASSERT_EQ(Put(*stopped, Step({other, in, 1}, 16)), CUDA_SUCCESS);
  StopThenRelease(word);
  ASSERT_EQ(Put(*queue, Step({out, in, 1}, 16)), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(out), Words(kWords, 1));
  EXPECT_EQ(queues_->counts().num_stops, 1u) << "only the other one's";
  watch_.SetClosed(false);
  ASSERT_EQ(stopped->Seal(), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamSynchronize(others), CUDA_SUCCESS);
}

TEST_F(GatedQueuesTest, WhatAClientThatLeftHadQueuedIsDropped) {
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto owner = std::make_shared<RunsOwner>();
  auto queue = queues_->Open(stream, owner);
  const CUdeviceptr word = Block(stream);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Put(*queue, Step({out, in, 1}, 16)), CUDA_SUCCESS);
    ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
  }
  StopThenRelease(word);
  owner->has_left = true;
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);  // though it is still closed
  Await([&] { return queues_->counts().num_abandoned == 1; });
  EXPECT_EQ(Read(out), Words(kWords, 0));
  queues_->AwaitFunction(function_);
  watch_.SetClosed(false);
}

TEST_F(GatedQueuesTest, AStreamMayGoWhileItIsStopped) {
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto queue = queues_->Open(stream, nullptr);
  const CUdeviceptr word = Block(stream);
  for (uint32_t i = 0; i < 3; ++i) ASSERT_EQ(Put(*queue, Step({out, in, 1}, 16)), CUDA_SUCCESS);
  watch_.SetClosed(true);
  Await([&] { return queues_->counts().num_stops == 1; });
  queue.reset();
  ASSERT_EQ(driver_.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  Release(word);
  watch_.SetClosed(false);
  queues_->AwaitFunction(function_);
  EXPECT_EQ(Read(out), Words(kWords, 31));
}

// Where high-priority work shares the context what has no gate is held back here, not on the GPU.
TEST_F(GatedQueuesTest, BesideHighPriorityWorkOfTheContextNoStreamWaits) {
  CreateBesideHighPriorityWork();
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto queue = queues_->Open(stream, nullptr);
  const CUdeviceptr word = Block(stream);
  Words expected(kWords);
  LaunchSteps(*queue, out, in, 3, expected);
  StopThenRelease(word);
  std::atomic<bool> is_sealed{false};
  std::thread channel([&] {
    driver_.cuCtxSetCurrent(context_);
    EXPECT_EQ(queue->Seal(), CUDA_SUCCESS);
    is_sealed = true;
  });
  Await([&] { return HasEnded(stream); });
  still_clock_.Advance(std::chrono::seconds(1));  // it would not wait so long if nothing were stopped
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(is_sealed);
  watch_.SetClosed(false);
  channel.join();
  EXPECT_TRUE(HasEnded(stream));
  EXPECT_EQ(Read(out), expected);
  EXPECT_EQ(queues_->counts().num_markers, 0u);
}

// Frameworks put a fill in front of every few kernels: if each had to wait, or to be waited for, the GPU would pause.
TEST_F(GatedQueuesTest, FillsAndCopiesBehindLaunchesAreLaunchesThemselves) {
  CreateBesideHighPriorityWork();
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4), copy = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto queue = queues_->Open(stream, nullptr);
  const Transfer whole_copy{.to = copy, .from = out, .row_bytes = kWords * 4};
  EXPECT_FALSE(queue->Takes(whole_copy)) << "nothing is there to be stopped";
  const CUdeviceptr word = Block(stream);
  Words expected(kWords), zero(kWords), copied;
  LaunchSteps(*queue, out, in, 2, expected);
  EXPECT_FALSE(queue->Takes({.to = out, .row_bytes = 4, .rows = 2, .to_pitch = 16, .element_bytes = 4}));
  EXPECT_FALSE(queue->Takes({.to = out + 1, .row_bytes = 4, .element_bytes = 4})) << "the driver is to refuse it";
  EXPECT_FALSE(queue->Takes({.to = out, .row_bytes = GatedTransfers::kMostBytes + 4, .element_bytes = 4}));
  ASSERT_TRUE(queue->Takes(whole_copy));
  ASSERT_EQ(queue->Put(whole_copy), CUDA_SUCCESS);
  copied = expected;
  // Words 3 to 12 and the second half of word 20.
  ASSERT_EQ(queue->Put({.to = out + 12, .row_bytes = 40, .value = 0x01020304, .element_bytes = 4}), CUDA_SUCCESS);
  std::fill_n(expected.begin() + 3, 10, 0x01020304);
  ASSERT_EQ(queue->Put({.to = out + 82, .row_bytes = 2, .value = 0xABCD, .element_bytes = 2}), CUDA_SUCCESS);
  expected[20] = (expected[20] & 0xFFFF) | 0xABCD0000;
  LaunchSteps(*queue, out, in, 3, expected);
  StopThenRelease(word);
  Await([&] { return HasEnded(stream); });
  EXPECT_EQ(Read(out), zero);
  EXPECT_EQ(Read(copy), zero);
  watch_.SetClosed(false);
  ASSERT_EQ(queue->Seal(), CUDA_SUCCESS);
  EXPECT_EQ(Read(out), expected);
  EXPECT_EQ(Read(copy), copied);
  EXPECT_EQ(queues_->counts().num_markers, 0u);
  EXPECT_EQ(queues_->counts().num_transfers, 3u);
}

// It may wait for something that the same thread has yet to launch.
TEST_F(GatedQueuesTest, WhatDoesNotEndIsNotWaitedForForEver) {
  CreateBesideHighPriorityWork();
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto queue = queues_->Open(stream, nullptr);
  const CUdeviceptr word = Block(stream);
  ASSERT_EQ(Put(*queue, Step({out, in, 1}, 16)), CUDA_SUCCESS);
  std::atomic<bool> is_sealed{false};
  std::thread channel([&] {
    driver_.cuCtxSetCurrent(context_);
    EXPECT_EQ(queue->Seal(), CUDA_SUCCESS);
    is_sealed = true;
  });
  still_clock_.Advance(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(is_sealed);
  Await([&] {
    still_clock_.Advance(std::chrono::milliseconds(20));
    return is_sealed.load();
  });
  channel.join();
  EXPECT_FALSE(HasEnded(stream));
  EXPECT_EQ(queues_->counts().num_markers, 1u);
  Release(word);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(out), Words(kWords, 1));
}

TEST_F(GatedQueuesTest, ACaptureBehindWhatDoesNotEndIsNotSpoiled) {
  CreateBesideHighPriorityWork();
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto queue = queues_->Open(stream, nullptr);
  const CUdeviceptr word = Block(stream);
  ASSERT_EQ(Put(*queue, Step({out, in, 1}, 16)), CUDA_SUCCESS);
  std::atomic<bool> is_sealed{false};
  std::thread channel([&] {
    driver_.cuCtxSetCurrent(context_);
    EXPECT_EQ(queue->Seal(), CUDA_SUCCESS);
    is_sealed = true;
  });
  Await([&] {
    still_clock_.Advance(std::chrono::milliseconds(1));
    return is_sealed.load();
  });
  channel.join();
  ASSERT_EQ(driver_.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(queue->Seal(), CUDA_SUCCESS);  // as before each operation that it captures
  CUgraph graph = nullptr;
  EXPECT_EQ(driver_.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  Release(word);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(out), Words(kWords, 1));
}

// A long block runs on though it was told to stop. The program asks meanwhile whether its kernel has ended, and must
// hear no.
TEST_F(GatedQueuesTest, WhatDoesNotStopIsNotWaitedForForEver) {
  CreateBesideHighPriorityWork();
  const CUdeviceptr out = ZeroedMemory(kWords * 4), in = ZeroedMemory(kWords * 4);
  CUstream stream = Stream();
  auto queue = queues_->Open(stream, nullptr);
  const CUdeviceptr word = Block(stream);  // stands for the block: nothing leaves the GPU before Release
  ASSERT_EQ(Put(*queue, Step({out, in, 1}, 16)), CUDA_SUCCESS);
  watch_.SetClosed(true);
  Await([&] { return queues_->counts().num_stops == 1; });
  std::atomic<bool> is_sealed{false};
  std::thread channel([&] {
    driver_.cuCtxSetCurrent(context_);
    EXPECT_EQ(queue->Seal(), CUDA_SUCCESS);
    is_sealed = true;
  });
  Await([&] {
    still_clock_.Advance(std::chrono::milliseconds(1));
    return is_sealed.load();
  });
  channel.join();
  EXPECT_FALSE(HasEnded(stream));
  watch_.SetClosed(false);
  Release(word);
  ASSERT_EQ(driver_.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(out), Words(kWords, 1));
}

// ---------------------------------------------------------------- everything at once, at random

// Streams that compute, copy, fill and wait for one another, as a program would, and what must come out.
class RandomProgram {
 public:
  struct Channel {
    CUstream stream = nullptr;
    std::unique_ptr<GatedQueues::Stream> queue;
    CUdeviceptr words = 0;
    Words expected = Words(kWords);
    std::vector<std::pair<CUdeviceptr, Words>> copies;  // taken on the way
  };

  // `seals`: whether it does what makes stops harmless.
  RandomProgram(const DriverTable& driver, uint32_t seed, bool seals) : driver_(driver), random_(seed), seals_(seals) {}

  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  std::vector<Channel>& channels() { return channels_; }

  void Seal(Channel& channel) {
    if (!seals_) return;
    EXPECT_EQ(channel.queue->Seal(), CUDA_SUCCESS);
  }
  template <typename Step>
  void Launch(const Step& step, Channel& channel, const Channel& from) {
    const uint32_t addend = Below(1000);
    constexpr uint32_t kChunks[] = {1, 3, 40, 150, 5000};
    EXPECT_EQ(Put(*channel.queue, step({channel.words, from.words, addend, Below(60)}, kChunks[Below(5)])),
              CUDA_SUCCESS);
    StepOnHost(channel.expected, Words(from.expected), addend);
  }
  // Half of them as launches with a gate, where there is something in front.
  bool IsPutBehind(Channel& channel, const Transfer& transfer) {
    if (!seals_ || Below(2) == 0 || !channel.queue->Takes(transfer)) return false;
    EXPECT_EQ(channel.queue->Put(transfer), CUDA_SUCCESS);
    return true;
  }
  void Fill(Channel& channel) {
    const uint32_t value = Below(1000);
    if (IsPutBehind(channel, {.to = channel.words, .row_bytes = kWords * 4, .value = value, .element_bytes = 4})) {
      return channel.expected.assign(kWords, value);
    }
    Seal(channel);
    EXPECT_EQ(driver_.cuMemsetD32Async(channel.words, value, kWords, channel.stream), CUDA_SUCCESS);
    channel.expected.assign(kWords, value);
  }
  void Copy(Channel& channel, CUdeviceptr to) {
    if (!IsPutBehind(channel, {.to = to, .from = channel.words, .row_bytes = kWords * 4})) {
      Seal(channel);
      EXPECT_EQ(driver_.cuMemcpyDtoDAsync_v2(to, channel.words, kWords * 4, channel.stream), CUDA_SUCCESS);
    }
    channel.copies.emplace_back(to, channel.expected);
  }
  void Order(Channel& first, Channel& second) {
    CUevent event = nullptr;
    EXPECT_EQ(driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    Seal(first);
    EXPECT_EQ(driver_.cuEventRecord(event, first.stream), CUDA_SUCCESS);
    Seal(second);
    EXPECT_EQ(driver_.cuStreamWaitEvent(second.stream, event, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver_.cuEventDestroy_v2(event), CUDA_SUCCESS);
  }
  void Synchronize(Channel& channel) {
    Seal(channel);
    EXPECT_EQ(driver_.cuStreamSynchronize(channel.stream), CUDA_SUCCESS);
  }

 private:
  const DriverTable& driver_;
  std::mt19937 random_;
  const bool seals_;
  std::vector<Channel> channels_;
};

class RandomStops : public GatedQueuesTest {
 protected:
  // The number of words that came out wrong.
  uint64_t Run(uint32_t seed, bool seals) {
    RandomProgram program(driver_, seed, seals);
    const auto step = [this](const StepParameters& parameters, uint32_t chunk) { return Step(parameters, chunk); };
    for (uint32_t i = 0; i <= seed % 3; ++i) {
      auto& channel = program.channels().emplace_back();
      channel.stream = Stream();
      channel.queue = queues_->Open(channel.stream, nullptr);
      channel.words = ZeroedMemory(kWords * 4);
    }
    auto& channels = program.channels();
    const auto any = [&]() -> RandomProgram::Channel& {
      return channels[program.Below(static_cast<uint32_t>(channels.size()))];
    };
    uint64_t num_wrong = 0;
    const auto check = [&](CUdeviceptr words, const Words& expected) {
      const Words found = Read(words);
      for (uint32_t i = 0; i < kWords; ++i) num_wrong += found[i] != expected[i] ? 1 : 0;
    };
    std::atomic<bool> is_over{false};
    std::thread priority([&] {
      std::mt19937 random(seed);
      while (!is_over) {
        watch_.SetClosed(true);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
        watch_.SetClosed(false);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
      }
    });
    for (uint32_t i = 0; i < 60; ++i) {
      RandomProgram::Channel& channel = any();
      const uint32_t what = program.Below(20);
      if (what < 13) {
        program.Launch(step, channel, channel);
      } else if (what < 14) {
        program.Fill(channel);
      } else if (what < 16) {
        program.Copy(channel, ZeroedMemory(kWords * 4));
      } else if (what < 19) {
        RandomProgram::Channel& other = any();
        if (&other == &channel) continue;
        program.Order(other, channel);  // what it made is read here, and not changed meanwhile
        program.Launch(step, channel, other);
        program.Order(channel, other);
      } else {
        program.Synchronize(channel);
        check(channel.words, channel.expected);
      }
    }
    for (RandomProgram::Channel& channel : channels) program.Synchronize(channel);
    is_over = true;
    priority.join();
    if (!seals) {
      for (RandomProgram::Channel& channel : channels) {
        channel.queue.reset();
        driver_.cuStreamSynchronize(channel.stream);
      }
      queues_->AwaitFunction(function_);
    }
    for (RandomProgram::Channel& channel : channels) {
      check(channel.words, channel.expected);
      for (const auto& [words, expected] : channel.copies) check(words, expected);
      channel.queue.reset();
      driver_.cuStreamDestroy_v2(channel.stream);
    }
    return num_wrong;
  }
  void RunAll() {
    // How much is stopped half-way is chance: more programs, until it was enough.
    const auto is_enough = [&] { return queues_->counts().num_stops > 40 && queues_->counts().num_cut > 10; };
    for (uint32_t seed = 1; seed <= 40 || (!is_enough() && seed <= 400); ++seed)
      ASSERT_EQ(Run(seed, true), 0u) << "seed " << seed;
    const GatedCounts counts = queues_->counts();
    std::printf("    %lu launches, %lu markers; %lu stops, %lu launches made again, %lu of them cut\n",
                counts.num_launches, counts.num_markers, counts.num_stops, counts.num_relaunches, counts.num_cut);
    // The test is one only while it stops things half-way.
    EXPECT_GT(counts.num_stops, 40u);
    EXPECT_GT(counts.num_cut, 10u);
    EXPECT_GT(counts.num_transfers, 20u);
  }
};

TEST_F(RandomStops, ChangeNothing) {
  RunAll();
  EXPECT_GT(queues_->counts().num_markers, 40u);
}

TEST_F(RandomStops, ChangeNothingWhereNoStreamWaits) {
  CreateBesideHighPriorityWork();
  RunAll();
  EXPECT_EQ(queues_->counts().num_markers, 0u);
}

// So that the tests above can fail: without markers things overtake what was stopped.
TEST_F(RandomStops, WouldShowWithoutMarkers) {
  uint64_t num_wrong = 0;
  for (uint32_t seed = 1; seed <= 100 && num_wrong == 0; ++seed) num_wrong += Run(seed, false);
  EXPECT_NE(num_wrong, 0u);
}

}  // namespace
}  // namespace tally::server
