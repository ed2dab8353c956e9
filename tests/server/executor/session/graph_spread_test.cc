#include "server/executor/session/graph_spread.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

uint64_t LaunchesUntilTheNextPlan(SpreadRest* rest) {
  uint64_t launches = 0;
  while (rest->IsOn()) ++launches;
  return launches;
}

TEST(SpreadRestTest, AGraphThatWasNeverSlowerDoesNotRest) {
  SpreadRest rest;
  EXPECT_FALSE(rest.IsOn());
  EXPECT_FALSE(rest.IsOn());
}

// A service that was there for a while does not keep a graph at home for ever, and one that stays costs it less and
// less.
TEST(SpreadRestTest, EachRestIsTwiceAsLong) {
  SpreadRest rest;
  for (const uint64_t expected : {64u, 128u, 256u}) {
    rest.Begin();
    EXPECT_EQ(LaunchesUntilTheNextPlan(&rest), expected);
    EXPECT_FALSE(rest.IsOn()) << "a rest ends once";
  }
}

}  // namespace
}  // namespace tally::server
