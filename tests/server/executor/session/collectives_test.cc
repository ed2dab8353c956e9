#include "server/executor/session/collectives.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

constexpr const char* kMangled = "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";
constexpr Collectives::Key kShared{1, 2};
constexpr Collectives::Key kOther{1, 3};

class CollectivesTest : public ::testing::Test {
 protected:
  Collectives collectives_;
  const int first_ = 0, second_ = 0, third_ = 0;  // their addresses
};

TEST_F(CollectivesTest, TheSecondRankOfACommunicatorMustNot) {
  collectives_.NoteKernel(&first_, kMangled);
  collectives_.NoteKernel(&second_, "ncclKernel_AllReduce");
  EXPECT_TRUE(collectives_.MayUse(&first_, kShared));
  EXPECT_TRUE(collectives_.MayUse(&first_, kShared)) << "its own";
  EXPECT_FALSE(collectives_.MayUse(&second_, kShared));
  EXPECT_TRUE(collectives_.MayUse(&second_, kOther)) << "two communicators of one process each have nothing in common";
}

TEST_F(CollectivesTest, WhoHasNoKernelsOfNcclSharesAsBefore) {
  collectives_.NoteKernel(&first_, kMangled);
  collectives_.NoteKernel(&second_, "gemm");
  EXPECT_TRUE(collectives_.MayUse(&first_, kShared));
  EXPECT_TRUE(collectives_.MayUse(&second_, kShared));
  EXPECT_TRUE(collectives_.MayUse(&third_, kShared));
}

TEST_F(CollectivesTest, WhoIsGoneIsNoRank) {
  collectives_.NoteKernel(&first_, kMangled);
  EXPECT_TRUE(collectives_.MayUse(&first_, kShared));
  collectives_.Forget(&first_);
  collectives_.NoteKernel(&second_, kMangled);
  EXPECT_TRUE(collectives_.MayUse(&second_, kShared));
}

TEST_F(CollectivesTest, ARankRemembersABoundedNumber) {
  collectives_.NoteKernel(&first_, kMangled);
  for (uint64_t i = 0; i <= Collectives::kMostKeys; ++i) EXPECT_TRUE(collectives_.MayUse(&first_, {7, i}));
  collectives_.NoteKernel(&second_, kMangled);
  EXPECT_FALSE(collectives_.MayUse(&second_, {7, Collectives::kMostKeys - 1}));
  EXPECT_TRUE(collectives_.MayUse(&second_, {7, Collectives::kMostKeys}));
}

}  // namespace
}  // namespace tally::server
