// What may run beside what on one GPU, and on which stream.
#include "server/executor/mirror/step_queue.h"

#include <gtest/gtest.h>

#include <set>

namespace tally::server {
namespace {

using shm::MirrorCommandKind;

PlacedStep Step(MirrorCommandKind kind, uint64_t num_blocks = 1) {
  PlacedStep step;
  step.command.kind = kind;
  step.num_blocks = num_blocks;
  return step;
}

class RunningStepsTest : public testing::Test {
 protected:
  // False: it has to wait.
  bool Start(const PlacedStep& step) {
    const auto stream = running_.StreamFor(step);
    if (!stream) return false;
    EXPECT_LT(*stream, shm::kMirrorStreams);
    EXPECT_TRUE(streams_.insert(*stream).second) << "two on one stream: the second would wait for the first";
    running_.Add(*stream, step, next_ticket_++);
    return true;
  }
  void End(RunningSteps::Ticket ticket, uint32_t stream) {
    running_.Remove(ticket);
    EXPECT_EQ(streams_.erase(stream), 1u);
  }
  RunningSteps running_;
  std::set<uint32_t> streams_;
  RunningSteps::Ticket next_ticket_ = 10;
};

TEST_F(RunningStepsTest, SmallTasksRunTogetherAsLongAsThereAreStreams) {
  for (uint32_t i = 0; i < RunningSteps::kMostTasks; ++i) EXPECT_TRUE(Start(Step(MirrorCommandKind::kLaunch))) << i;
  EXPECT_FALSE(Start(Step(MirrorCommandKind::kRun)));
  End(13, 3);
  EXPECT_TRUE(Start(Step(MirrorCommandKind::kRun)));
  EXPECT_EQ(streams_.count(3), 1u);
}

TEST_F(RunningStepsTest, LargeTasksRunByTwos) {
  EXPECT_TRUE(Start(Step(MirrorCommandKind::kRun, UINT64_MAX)));
  EXPECT_TRUE(Start(Step(MirrorCommandKind::kRun, UINT64_MAX))) << "one may always wait on the GPU";
  EXPECT_FALSE(Start(Step(MirrorCommandKind::kFill))) << "sums do not wrap";
  End(10, 0);
  EXPECT_TRUE(Start(Step(MirrorCommandKind::kFill)));
}

TEST_F(RunningStepsTest, TheGpuIsGivenWhatKeepsItBusyAndNoMore) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Start(Step(MirrorCommandKind::kRun, RunningSteps::kEnoughBlocks / 3)));
  EXPECT_FALSE(Start(Step(MirrorCommandKind::kRun)));
}

TEST_F(RunningStepsTest, CopiesAndTasksDoNotWaitForOneAnother) {
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(Start(Step(MirrorCommandKind::kRun, RunningSteps::kEnoughBlocks)));
  for (uint32_t i = 0; i < RunningSteps::kMostCopies; ++i) EXPECT_TRUE(Start(Step(MirrorCommandKind::kFetch))) << i;
  EXPECT_FALSE(Start(Step(MirrorCommandKind::kWriteBack)));
  EXPECT_FALSE(Start(Step(MirrorCommandKind::kRun)));
  End(10, 0);
  EXPECT_FALSE(Start(Step(MirrorCommandKind::kWriteBack)));
  EXPECT_TRUE(Start(Step(MirrorCommandKind::kRun)));
}

TEST_F(RunningStepsTest, TheFirstIsTheLowestThatRuns) {
  EXPECT_EQ(running_.first(), std::nullopt);
  for (int i = 0; i < 3; ++i) Start(Step(MirrorCommandKind::kLaunch));
  EXPECT_EQ(running_.first(), 10u);
  End(10, 0);
  Start(Step(MirrorCommandKind::kLaunch));  // 13, on the first stream again
  EXPECT_EQ(running_.first(), 11u);
}

}  // namespace
}  // namespace tally::server
