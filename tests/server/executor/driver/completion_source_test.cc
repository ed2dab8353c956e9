#include "server/executor/driver/completion_source.h"

#include <vector>

#include "tests/server/executor/dispatch/scripted_gpu.h"
#include "tests/server/executor/issue/sim_device.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;

const auto kOne = reinterpret_cast<CUstream>(1);
const auto kOther = reinterpret_cast<CUstream>(2);

class CompletionSourceTest : public testing::Test {
 protected:
  CompletionSourceTest() { ScriptedGpu::Reset(); }
  Mark PutOn(CUstream stream, MarkKind kind = MarkKind::kPlain) {
    Mark mark;
    EXPECT_EQ(completions_.Put(stream, &mark, kind), CUDA_SUCCESS);
    return mark;
  }
  uint64_t NumMade() const { return ScriptedGpu::NumEvents() - num_made_before_; }

  const uint64_t num_made_before_ = ScriptedGpu::NumEvents();
  const DriverTable table_ = ScriptedGpu::Table();
  CompletionSource completions_{table_};
};

TEST_F(CompletionSourceTest, AMarkEndsWithWhatIsBeforeIt) {
  ScriptedGpu::Stop();
  const Mark mark = PutOn(kOne);
  const Mark later = PutOn(kOne);
  EXPECT_EQ(mark.State(), CUDA_ERROR_NOT_READY);
  EXPECT_FALSE(mark.HasEnded());
  ScriptedGpu::EndOne(kOne);
  EXPECT_TRUE(mark.HasEnded());
  EXPECT_FALSE(later.HasEnded());
}

TEST_F(CompletionSourceTest, AMarkOfNothingHasEnded) {
  const Mark mark;
  EXPECT_FALSE(mark.exists());
  EXPECT_EQ(mark.State(), CUDA_SUCCESS);
  EXPECT_EQ(mark.Await(), CUDA_SUCCESS);
  EXPECT_EQ(mark.HoldBack(kOne), CUDA_SUCCESS);
  EXPECT_EQ(completions_.Between(mark, mark), std::nullopt);
}

TEST_F(CompletionSourceTest, WhatHasEndedIsNotAskedAgain) {
  const Mark mark = PutOn(kOne);
  EXPECT_TRUE(mark.HasEnded());
  const uint64_t num_queries = ScriptedGpu::NumQueries();
  EXPECT_TRUE(mark.HasEnded());
  EXPECT_EQ(mark.Await(), CUDA_SUCCESS);
  EXPECT_EQ(ScriptedGpu::NumQueries(), num_queries);
}

TEST_F(CompletionSourceTest, AMarkThatMovesOnStandsForItsNewPlace) {
  Mark mark = PutOn(kOne);
  EXPECT_TRUE(mark.HasEnded());
  ScriptedGpu::Stop();
  EXPECT_EQ(completions_.Put(kOther, &mark), CUDA_SUCCESS);
  EXPECT_EQ(mark.stream(), kOther);
  EXPECT_FALSE(mark.HasEnded());
  EXPECT_EQ(NumMade(), 1u);
}

TEST_F(CompletionSourceTest, AMarkOfAnotherDeviceOrKindIsNotMovedButReplaced) {
  CompletionSource elsewhere(table_);
  Mark mark = PutOn(kOne);
  EXPECT_EQ(completions_.Put(kOne, &mark, MarkKind::kTimed), CUDA_SUCCESS);
  EXPECT_EQ(NumMade(), 2u);
  EXPECT_EQ(elsewhere.Put(kOther, &mark, MarkKind::kTimed), CUDA_SUCCESS);
  EXPECT_EQ(NumMade(), 3u);
  mark.Clear();
  // Each has gone home.
  const Mark here = PutOn(kOne, MarkKind::kTimed);
  EXPECT_EQ(elsewhere.Put(kOther, &mark, MarkKind::kTimed), CUDA_SUCCESS);
  EXPECT_EQ(NumMade(), 3u);
}

TEST_F(CompletionSourceTest, AHandleThatWasMovedFromOwnsNothing) {
  ScriptedGpu::Stop();
  Mark mark = PutOn(kOne);
  Mark moved(std::move(mark));
  EXPECT_FALSE(mark.exists());
  EXPECT_TRUE(mark.HasEnded());
  EXPECT_FALSE(moved.HasEnded());
  mark.Clear();
  const Mark other = PutOn(kOther);
  EXPECT_EQ(NumMade(), 2u) << "the first is still in use";
}

// Who waits for the old mark's place in the driver would wait for the new one's.
TEST_F(CompletionSourceTest, ThePoolHandsOutNothingThatIsPending) {
  ScriptedGpu::Stop();
  PutOn(kOne);  // gone at once
  const Mark second = PutOn(kOther);
  EXPECT_EQ(NumMade(), 2u);
  ScriptedGpu::EndOne(kOne);
  const Mark third = PutOn(kOther);
  EXPECT_EQ(NumMade(), 2u) << "the first one's has ended";
  EXPECT_FALSE(third.HasEnded());
}

TEST_F(CompletionSourceTest, OneThatNeverEndsHoldsUpNoOther) {
  ScriptedGpu::Stop();
  PutOn(kOne);
  for (int i = 0; i < 10; ++i) {
    PutOn(kOther);
    ScriptedGpu::EndOne(kOther);
  }
  EXPECT_LE(NumMade(), 3u);
}

TEST_F(CompletionSourceTest, TwoTimedMarksSayHowLongItTook) {
  ScriptedGpu::SetDuration(0.25f);
  ScriptedGpu::Stop();
  const Mark begin = PutOn(kOne, MarkKind::kTimed);
  const Mark end = PutOn(kOne, MarkKind::kTimed);
  EXPECT_EQ(completions_.Between(begin, end), std::nullopt);
  ScriptedGpu::Go();
  EXPECT_EQ(completions_.Between(begin, end), microseconds(250));
}

TEST_F(CompletionSourceTest, APreparedMarkHasEndedUntilItIsPut) {
  ScriptedGpu::Stop();
  Mark mark;
  EXPECT_EQ(completions_.Prepare(&mark), CUDA_SUCCESS);
  EXPECT_TRUE(mark.HasEnded());
  EXPECT_EQ(completions_.Put(kOne, &mark), CUDA_SUCCESS);
  EXPECT_FALSE(mark.HasEnded());
  EXPECT_EQ(NumMade(), 1u);
}

TEST_F(CompletionSourceTest, MarksOfALostContextHaveEndedAndOneWhoAsksIsTold) {
  const Mark mark = PutOn(kOne);
  Mark other = PutOn(kOther);
  EXPECT_EQ(completions_.TakeError(), CUDA_SUCCESS);
  ScriptedGpu::Fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(completions_.TakeError(), CUDA_SUCCESS) << "nobody has looked yet";
  EXPECT_TRUE(mark.HasEnded());
  EXPECT_EQ(other.State(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(completions_.TakeError(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(mark.HasEnded());
  EXPECT_EQ(completions_.TakeError(), CUDA_SUCCESS);
  EXPECT_NE(completions_.Put(kOne, &other), CUDA_SUCCESS);
  Mark none;
  EXPECT_NE(completions_.Put(kOne, &none), CUDA_SUCCESS);
  EXPECT_FALSE(none.exists());
  EXPECT_TRUE(none.HasEnded());
}

TEST_F(CompletionSourceTest, AnErrorThatCostsNothingIsNotReported) {
  const Mark mark = PutOn(kOne);
  ScriptedGpu::Fail(CUDA_ERROR_INVALID_HANDLE);
  EXPECT_TRUE(mark.HasEnded());
  EXPECT_EQ(completions_.TakeError(), CUDA_SUCCESS);
}

TEST_F(CompletionSourceTest, AfterAnErrorAMarkIsWhereItWas) {
  ScriptedGpu::Stop();
  Mark mark = PutOn(kOne);
  ScriptedGpu::Fail(CUDA_ERROR_INVALID_HANDLE);
  EXPECT_NE(completions_.Put(kOther, &mark), CUDA_SUCCESS);
  ScriptedGpu::Fail(CUDA_SUCCESS);
  EXPECT_EQ(mark.stream(), kOne);
  EXPECT_FALSE(mark.HasEnded());
}

TEST_F(CompletionSourceTest, NothingIsLeftAtTheEndWhateverWasPending) {
  ScriptedGpu::Stop();
  {
    CompletionSource completions(table_);
    for (const MarkKind kind : {MarkKind::kPlain, MarkKind::kTimed}) {
      Mark pending, other;
      EXPECT_EQ(completions.Put(kOne, &pending, kind), CUDA_SUCCESS);
      EXPECT_EQ(completions.Put(kOther, &other, kind), CUDA_SUCCESS);
      ScriptedGpu::EndOne(kOther);
      EXPECT_TRUE(other.HasEnded() || kind == MarkKind::kTimed);
    }
  }
  EXPECT_EQ(ScriptedGpu::NumDestroyed(), NumMade());
}

TEST_F(CompletionSourceTest, WhatABurstNeededIsNotKeptForEver) {
  {
    std::vector<Mark> marks;
    for (int i = 0; i < 10'000; ++i) marks.push_back(PutOn(kOne));
  }
  EXPECT_GE(ScriptedGpu::NumDestroyed(), 5'000u);
  EXPECT_LT(ScriptedGpu::NumDestroyed(), NumMade());
}

TEST_F(CompletionSourceTest, BehindOneThatHasNotEndedNoOtherOfItsStreamIsAsked) {
  ScriptedGpu::Stop();
  std::vector<Mark> marks;
  for (int i = 0; i < 4; ++i) marks.push_back(PutOn(kOne));
  marks.push_back(PutOn(kOther));
  ScriptedGpu::EndOne(kOne);
  ScriptedGpu::EndOne(kOther);
  const uint64_t num_queries = ScriptedGpu::NumQueries();
  Look look;
  std::vector<bool> have_ended;
  for (const Mark& mark : marks) have_ended.push_back(look.HasEnded(mark));
  EXPECT_EQ(have_ended, (std::vector<bool>{true, false, false, false, true}));
  EXPECT_EQ(ScriptedGpu::NumQueries() - num_queries, 3u);
  EXPECT_TRUE(look.HasEnded(Mark()));
}

// On the software driver, where a stream that was destroyed really is none any more.
class CompletionOnDeviceTest : public SimDeviceTest {
 protected:
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
};

TEST_F(CompletionOnDeviceTest, AMarkOutlivesItsStream) {
  const CUstream stream = Stream();
  const CUdeviceptr word = Block(stream);
  Mark mark;
  ASSERT_EQ(completions_->Put(stream, &mark), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_FALSE(mark.HasEnded());
  Release(word);
  EXPECT_EQ(mark.Await(), CUDA_SUCCESS);
  EXPECT_TRUE(mark.HasEnded());
  const CUstream next = Stream();
  EXPECT_EQ(completions_->Put(next, &mark), CUDA_SUCCESS);
  EXPECT_EQ(mark.Await(), CUDA_SUCCESS);
}

TEST_F(CompletionOnDeviceTest, AStreamThatIsHeldBackGoesOnEvenIfTheMarkHasGone) {
  const CUstream stream = Stream(), behind = Stream();
  const CUdeviceptr word = Block(stream);
  {
    Mark mark;
    ASSERT_EQ(completions_->Put(stream, &mark), CUDA_SUCCESS);
    ASSERT_EQ(mark.HoldBack(behind), CUDA_SUCCESS);
  }
  EXPECT_FALSE(HasEnded(behind));
  Release(word);
  EXPECT_EQ(driver_.cuStreamSynchronize(behind), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tally::server
