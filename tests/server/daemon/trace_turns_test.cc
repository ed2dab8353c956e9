#include "server/daemon/trace_turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tally::server {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{30'000};

TEST(TraceTurns, OneRecordsAtATime) {
  TraceTurns turns;
  const auto end = [] { ADD_FAILURE() << "nobody goes before the first"; };
  EXPECT_TRUE(turns.Enter(true, kLong, end).ok());
  EXPECT_EQ(turns.Enter(false, kLong, end).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(turns.Enter(true, kLong, end).code(), StatusCode::kAlreadyExists);
  EXPECT_FALSE(turns.Leave());
  EXPECT_TRUE(turns.Enter(false, kLong, end).ok());
  EXPECT_EQ(turns.Enter(false, kLong, end).code(), StatusCode::kAlreadyExists);
  EXPECT_FALSE(turns.Leave());
}

TEST(TraceTurns, AUsersEndsForTheAdministrator) {
  TraceTurns turns;
  ASSERT_TRUE(turns.Enter(false, kLong, [] {}).ok());
  std::atomic<int> num_asked{0};
  std::thread user([&] {
    // The recording begins only after the first time that it was to end.
    while (num_asked < 2) std::this_thread::yield();
    EXPECT_TRUE(turns.Leave());
  });
  EXPECT_TRUE(turns.Enter(true, kLong, [&] { ++num_asked; }).ok());
  user.join();
  EXPECT_EQ(turns.Enter(false, kLong, [] {}).code(), StatusCode::kAlreadyExists);
  EXPECT_FALSE(turns.Leave());
}

TEST(TraceTurns, OneThatDoesNotEndIsWaitedForWithABound) {
  TraceTurns turns;
  ASSERT_TRUE(turns.Enter(false, kLong, [] {}).ok());
  EXPECT_EQ(turns.Enter(true, milliseconds(1), [] {}).code(), StatusCode::kAlreadyExists);
  turns.Leave();
  EXPECT_TRUE(turns.Enter(false, kLong, [] {}).ok());
  EXPECT_FALSE(turns.Leave()) << "what is said of one is not said of the next";
}

}  // namespace
}  // namespace tally::server
