#include "server/daemon/peer_facts.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace tally::server {
namespace {

TEST(PeerFacts, AProcessInANamespaceBelowHasSeveralNumbers) {
  EXPECT_FALSE(IsInAnotherNamespace("Name:\tsleep\nNSpid:\t4711\nNSpgid:\t1\n"));
  EXPECT_TRUE(IsInAnotherNamespace("Name:\tsleep\nNSpid:\t4711\t1\nNSpgid:\t1\n"));
  EXPECT_TRUE(IsInAnotherNamespace("")) << "what cannot be read is no exemption";
  EXPECT_TRUE(IsInAnotherNamespace("Name:\tx\nPid:\t1\n")) << "nor a kernel that does not say";
  EXPECT_TRUE(IsInAnotherNamespace("Name:\tNSpid:\t1\nNSpid:\t4711\t1\n")) << "a process names itself";
}

TEST(PeerFacts, RootOfTheMachineIsUserZeroHere) {
  const auto pair = CreateSocketPair();
  ASSERT_TRUE(pair);
  EXPECT_TRUE(IsRootOfTheMachine(pair->first.get(), {::getpid(), 0, 0}));
  EXPECT_FALSE(IsRootOfTheMachine(pair->first.get(), {::getpid(), 1000, 1000}));
  EXPECT_FALSE(IsRootOfTheMachine(pair->first.get(), {0, 0, 0})) << "of a process namespace that we do not see";
}

TEST(PeerFacts, ACgroupIsPrintableAndBounded) {
  EXPECT_EQ(CgroupIn("3:cpu:/a\n0::/kubepods.slice/pod1\n"), "/kubepods.slice/pod1");
  EXPECT_EQ(CgroupIn("3:cpu:/a\n"), "");
  EXPECT_EQ(CgroupIn("0::/a b\x1b[31m\xff\n"), "/a?b?[31m?");
  const std::string text = CgroupIn("0::/" + std::string(5000, 'x') + "/the-end\n");
  EXPECT_EQ(text.size(), kMaxCgroupLetters);
  EXPECT_TRUE(text.starts_with("...")) << text;
  EXPECT_TRUE(text.ends_with("/the-end")) << text;
  EXPECT_EQ(CgroupOf(0), "");
}

}  // namespace
}  // namespace tally::server
