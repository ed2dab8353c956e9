#include "client-shim/arrivals/socket_table.h"

#include <gtest/gtest.h>

#include <set>

namespace tally::client_shim {
namespace {

struct Kernel {
  std::set<int> sockets;
  int num_asked = 0;
  bool Ask(int fd) {
    ++num_asked;
    return sockets.contains(fd);
  }
};

TEST(SocketTable, AsksOnceAndForgetsWhenTold) {
  static SocketTable table;
  Kernel kernel{.sockets = {5}};
  const auto ask = [&](int fd) { return kernel.Ask(fd); };
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(table.IsSocket(5, ask));
  EXPECT_EQ(kernel.num_asked, 1);
  kernel.sockets.clear();
  table.Forget(5);
  EXPECT_FALSE(table.IsSocket(5, ask));
}

// The C library closes descriptors that nobody sees it close, and the number becomes a socket's.
TEST(SocketTable, ThatOneIsNoSocketIsAskedAgain) {
  static SocketTable table;
  Kernel kernel;
  const auto ask = [&](int fd) { return kernel.Ask(fd); };
  EXPECT_FALSE(table.IsSocket(7, ask));
  kernel.sockets = {7};
  int calls = 0;
  while (!table.IsSocket(7, ask) && calls < 1000) ++calls;
  EXPECT_LE(calls, SocketTable::kBelievedTimes);
  EXPECT_GE(calls, SocketTable::kBelievedTimes / 2);
}

TEST(SocketTable, OthersThanItHasRoomForAreNone) {
  static SocketTable table;
  const auto ask = [](int) { return true; };
  for (const int fd : {-1, SocketTable::kDescriptors, 1 << 30, INT32_MIN}) {
    EXPECT_FALSE(table.IsSocket(fd, ask)) << fd;
    table.Forget(fd);
  }
  EXPECT_TRUE(table.IsSocket(SocketTable::kDescriptors - 1, ask));
}

}  // namespace
}  // namespace tally::client_shim
