#include "client-shim/state/context_storage.h"

#include <gtest/gtest.h>

namespace tally::client_shim {
namespace {

TEST(ContextStorage, ForgetsWhatWasRemovedAndRunsDestructorsAtTheContextsEnd) {
  ContextStorage storage;
  int key = 0, value = 0;
  void* found = nullptr;
  EXPECT_FALSE(storage.Get(1, &key, &found));
  static int destroyed;
  destroyed = 0;
  storage.Put(1, &key, &value, [](CUcontext, void*, void* stored) {
    EXPECT_NE(stored, nullptr);
    ++destroyed;
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(storage.Get(1, &key, &found));
    EXPECT_EQ(found, &value);
  }
  EXPECT_FALSE(storage.Get(2, &key, &found));
  EXPECT_TRUE(storage.Remove(1, &key));
  EXPECT_FALSE(storage.Get(1, &key, &found)) << "a remembered answer outlived its entry";
  EXPECT_EQ(destroyed, 0);
  storage.Put(1, &key, &value, [](CUcontext, void*, void*) { ++destroyed; });
  storage.EndContext(1, nullptr);
  EXPECT_EQ(destroyed, 1);
  EXPECT_FALSE(storage.Get(1, &key, &found));
}

}  // namespace
}  // namespace tally::client_shim
