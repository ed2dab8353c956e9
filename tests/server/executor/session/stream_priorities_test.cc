#include <gtest/gtest.h>

#include "server/executor/session/client_context.h"

namespace tally::server {
namespace {

TEST(StreamPrioritiesTest, AreTheProgramsOwnWhereItsClassIsAlone) {
  const StreamPriorities priorities;
  for (const int asked : {0, -1, -5, 3}) EXPECT_EQ(priorities.Of(asked), asked);
}

TEST(StreamPrioritiesTest, InAMixedContextEveryHighPriorityStreamGoesBeforeEveryOther) {
  std::atomic<bool> is_high{true};
  const StreamPriorities priorities{true, &is_high};
  EXPECT_EQ(priorities.Of(0), -1);
  EXPECT_EQ(priorities.Of(-2), -3);
  is_high = false;
  for (const int asked : {0, -1, -5}) EXPECT_EQ(priorities.Of(asked), 0);
}

}  // namespace
}  // namespace tally::server
