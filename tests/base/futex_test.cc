#include "base/futex.h"

#include <gtest/gtest.h>

#include <thread>

namespace tally {
namespace {

TEST(Futex, ReturnsAtOnceWhenTheWordHasChanged) {
  std::atomic<uint32_t> word{1};
  EXPECT_TRUE(FutexWait(word, 0, std::chrono::hours(1)));
}

TEST(Futex, TellsATimeOut) {
  std::atomic<uint32_t> word{0};
  EXPECT_FALSE(FutexWait(word, 0, std::chrono::milliseconds(1)));
}

TEST(Futex, WakesASleeper) {
  std::atomic<uint32_t> word{0};
  std::thread sleeper([&] {
    while (word.load() == 0) FutexWait(word, 0, std::chrono::hours(1));
  });
  word.store(1);
  FutexWake(word, 1);
  sleeper.join();
}

}  // namespace
}  // namespace tally
