#include <gtest/gtest.h>

#include "server/session/client_context.h"

namespace tally::server {
namespace {

TEST(StreamPrioritiesTest, KeepTheirOrderWhereTheClassIsAlone) {
  const StreamPriorities priorities;
  EXPECT_EQ(priorities.Of(3), 0);
  EXPECT_EQ(priorities.Of(0), 0);
  EXPECT_EQ(priorities.Of(-1), -2);
  EXPECT_EQ(priorities.Of(-2), -3);
}

TEST(StreamPrioritiesTest, LeaveThoseOfStreamsThatLetOthersGoOn) {
  std::atomic<bool> is_high{true};
  for (const StreamPriorities& priorities : {StreamPriorities{}, StreamPriorities{true, &is_high}}) {
    for (int asked = 1; asked > -8; --asked) {
      EXPECT_NE(priorities.Of(asked), kResumePriority);
      EXPECT_GT(priorities.Of(asked), kSignalPriority);
    }
  }
}

TEST(StreamPrioritiesTest, InAMixedContextEveryHighPriorityStreamGoesBeforeEveryOther) {
  std::atomic<bool> is_high{true};
  const StreamPriorities priorities{true, &is_high};
  EXPECT_EQ(priorities.Of(0), -2);
  EXPECT_EQ(priorities.Of(-1), -3);
  is_high = false;
  for (const int asked : {0, -1, -5}) EXPECT_EQ(priorities.Of(asked), 0);
}

}  // namespace
}  // namespace tally::server
