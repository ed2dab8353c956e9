#include "client-shim/state/context_limits.h"

#include <gtest/gtest.h>

namespace tally::client_shim {
namespace {

TEST(ContextLimits, KeepsWhatWasAnsweredUntilOneIsSet) {
  ContextLimits limits;
  EXPECT_FALSE(limits.Find(CU_LIMIT_STACK_SIZE));
  limits.Keep(CU_LIMIT_STACK_SIZE, 1024, limits.num_changes());
  limits.Keep(CU_LIMIT_MALLOC_HEAP_SIZE, 0, limits.num_changes());
  EXPECT_EQ(limits.Find(CU_LIMIT_STACK_SIZE), 1024u);
  EXPECT_EQ(limits.Find(CU_LIMIT_MALLOC_HEAP_SIZE), 0u);
  limits.Forget();
  EXPECT_FALSE(limits.Find(CU_LIMIT_STACK_SIZE));
  EXPECT_FALSE(limits.Find(CU_LIMIT_MALLOC_HEAP_SIZE));
}

// Two threads: one asks, the other sets before the answer is kept.
TEST(ContextLimits, AnAnswerFromBeforeAChangeIsNotKept) {
  ContextLimits limits;
  const uint64_t before = limits.num_changes();
  limits.Forget();
  limits.Keep(CU_LIMIT_STACK_SIZE, 1024, before);
  EXPECT_FALSE(limits.Find(CU_LIMIT_STACK_SIZE));
}

TEST(ContextLimits, WhatIsNoLimitIsNotKept) {
  ContextLimits limits;
  limits.Keep(CU_LIMIT_MAX, 1, limits.num_changes());
  EXPECT_FALSE(limits.Find(CU_LIMIT_MAX));
}

}  // namespace
}  // namespace tally::client_shim
