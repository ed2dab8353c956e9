#include "server/executor/session/awaited_objects.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

TEST(AwaitedObjects, TheLastWhoWaitsDestroysWhatWasToBeDestroyed) {
  AwaitedObjects awaited;
  const int first = 0, second = 0, third = 0;
  EXPECT_FALSE(awaited.PutOffDestruction(&first)) << "nobody waits for it";
  awaited.Begin(&first);
  awaited.Begin(&second);
  awaited.Begin(&first);
  EXPECT_TRUE(awaited.PutOffDestruction(&first));
  EXPECT_FALSE(awaited.PutOffDestruction(&third));
  EXPECT_FALSE(awaited.End(&first)) << "another one still waits for it";
  EXPECT_FALSE(awaited.End(&second)) << "nobody wants it destroyed";
  EXPECT_TRUE(awaited.End(&first));
  EXPECT_FALSE(awaited.PutOffDestruction(&first));
  awaited.Begin(&first);
  EXPECT_FALSE(awaited.End(&first)) << "that was another one at the same address";
}

}  // namespace
}  // namespace tally::server
