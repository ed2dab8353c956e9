#include "client-shim/state/pools.h"

#include <gtest/gtest.h>

namespace tally::client_shim {
namespace {

TEST(Pools, TheDefaultIsCurrentAgainWhereARemovedOneWas) {
  Pools pools;
  pools.Add(5, 0);
  pools.Add(6, 1);
  pools.SetCurrent(0, 5);
  pools.SetCurrent(1, 6);
  pools.Remove(5);
  EXPECT_EQ(pools.Current(0), 0u);
  EXPECT_EQ(pools.Current(1), 6u);
  EXPECT_EQ(pools.DeviceOf(5), -1);
  EXPECT_EQ(pools.DeviceOf(6), 1);
  pools.SetCurrent(1, 0);
  EXPECT_EQ(pools.Current(1), 0u);
}

}  // namespace
}  // namespace tally::client_shim
