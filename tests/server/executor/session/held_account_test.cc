#include "server/executor/session/held_account.h"

#include <gtest/gtest.h>

#include <optional>

namespace tally::server {
namespace {

constexpr HeldLimits kOfSession = {2, 100, 100, 100};
constexpr HeldLimits kOfUser = {3, 150, 1000, 1000};

TEST(HeldAccount, SessionsAndTheirUserHaveLimitsOfEachKind) {
  HeldByUsers users;
  HeldAccount first(kOfSession, kOfUser, users.Of(1));
  HeldAccount second(kOfSession, kOfUser, users.Of(1));
  HeldAccount of_another(kOfSession, kOfUser, users.Of(2));
  EXPECT_TRUE(first.Take(Held::kChannels, 2));
  EXPECT_FALSE(first.Take(Held::kChannels, 1)) << "the session's limit";
  EXPECT_TRUE(second.Take(Held::kChannels, 1));
  EXPECT_FALSE(second.Take(Held::kChannels, 1)) << "the user's limit";
  EXPECT_TRUE(of_another.Take(Held::kChannels, 2));
  EXPECT_TRUE(first.Take(Held::kPinnedBytes, 100)) << "another kind";
  first.Return(Held::kChannels, 1);
  EXPECT_TRUE(second.Take(Held::kChannels, 1)) << "what was refused is not counted";
  EXPECT_FALSE(second.Take(Held::kPinnedBytes, 51));
  EXPECT_TRUE(second.Take(Held::kPinnedBytes, 50));
  EXPECT_FALSE(second.Take(Held::kPinnedBytes, UINT64_MAX));
}

TEST(HeldAccount, ASessionThatEndsReturnsEverything) {
  HeldByUsers users;
  std::optional<HeldAccount> gone(std::in_place, kOfSession, kOfUser, users.Of(1));
  HeldAccount stays(kOfSession, kOfUser, users.Of(1));
  ASSERT_TRUE(gone->Take(Held::kChannels, 2));
  ASSERT_TRUE(gone->Take(Held::kPinnedBytes, 100));
  EXPECT_FALSE(stays.Take(Held::kChannels, 2));
  gone.reset();
  EXPECT_TRUE(stays.Take(Held::kChannels, 2));
  EXPECT_TRUE(stays.Take(Held::kPinnedBytes, 100));
}

}  // namespace
}  // namespace tally::server
