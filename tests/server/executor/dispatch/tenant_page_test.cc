#include "server/executor/dispatch/tenant_page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "tests/support/thread_state.h"

namespace tally::server {
namespace {

constexpr uint64_t kLimit = 1000;

class TenantPageTest : public ::testing::Test {
 protected:
  TenantPageTest() {
    char path[] = "/tmp/tenant-page-XXXXXX";
    directory_ = ::mkdtemp(path);
  }
  ~TenantPageTest() override { std::filesystem::remove_all(directory_); }
  std::string Path() const { return directory_ + "/page"; }
  // As another executor has it: locks are those of an open file.
  std::unique_ptr<TenantPage> Open() const {
    auto page = TenantPage::Open(Path());
    EXPECT_TRUE(page) << page.error().message();
    return std::move(*page);
  }
  // A process that does this with the page and then says so; killed by the caller.
  template <typename Action>
  pid_t Executor(Action action) const {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      auto page = TenantPage::Open(Path());
      if (!page) ::_exit(1);
      if (::write(ends[1], "!", 1) != 1) ::_exit(1);
      action(**page);
      for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
    return pid;
  }
  static void Kill(pid_t pid) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }

  std::string directory_;
};

TEST_F(TenantPageTest, WhatAllExecutorsHoldCounts) {
  const auto one = Open(), other = Open();
  EXPECT_TRUE(one->Reserve(0, 600, kLimit));
  EXPECT_FALSE(other->Reserve(0, 401, kLimit));
  EXPECT_TRUE(other->Reserve(0, 400, kLimit));
  EXPECT_TRUE(other->Reserve(1, kLimit, kLimit)) << "of another device";
  EXPECT_EQ(one->HeldBytes(0), 1000u);
  one->Return(0, 600);
  EXPECT_EQ(other->HeldBytes(0), 400u);
}

TEST_F(TenantPageTest, NothingWrapsAround) {
  const auto page = Open();
  EXPECT_FALSE(page->Reserve(0, UINT64_MAX, kLimit));
  EXPECT_TRUE(page->Reserve(0, 10, kLimit));
  EXPECT_FALSE(page->Reserve(0, UINT64_MAX - 5, kLimit));
  page->Add(0, 5000);  // what is there already, over the limit
  EXPECT_FALSE(page->Reserve(0, 1, kLimit));
  EXPECT_EQ(page->HeldBytes(0), 5010u);
}

TEST_F(TenantPageTest, AnExecutorThatEndsHoldsNothing) {
  const auto page = Open();
  auto other = Open();
  ASSERT_TRUE(other->Reserve(0, kLimit, kLimit));
  EXPECT_FALSE(page->Reserve(0, 1, kLimit));
  other.reset();
  EXPECT_TRUE(page->Reserve(0, kLimit, kLimit));
}

TEST_F(TenantPageTest, AnExecutorThatIsKilledHoldsNothingOnceThereIsNoRoom) {
  const auto page = Open();
  const pid_t pid = Executor([](TenantPage& own) { (void)own.Reserve(0, kLimit, kLimit); });
  while (page->HeldBytes(0) == 0) std::this_thread::yield();
  EXPECT_FALSE(page->Reserve(0, 1, kLimit)) << "it lives";
  Kill(pid);
  EXPECT_TRUE(page->Reserve(0, kLimit, kLimit));
  EXPECT_EQ(page->HeldBytes(0), kLimit);
}

// In the middle of whatever it does, the lock held or not.
TEST_F(TenantPageTest, ExecutorsKilledAtAnyMomentLeaveNothingBehind) {
  const auto page = Open();
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    const pid_t pid = Executor([](TenantPage& own) {
      for (;;) {
        if (own.Reserve(0, 100, kLimit)) own.Return(0, 100);
      }
    });
    ::usleep(random() % 3000);
    Kill(pid);
    ASSERT_TRUE(page->Reserve(0, kLimit, kLimit)) << round;
    page->Return(0, kLimit);
  }
}

TEST_F(TenantPageTest, ASlotIsGivenAgain) {
  for (uint32_t i = 0; i < 2 * shm::kTenantSlots; ++i) Open();
  std::vector<std::unique_ptr<TenantPage>> pages;
  for (uint32_t i = 0; i < shm::kTenantSlots; ++i) pages.push_back(Open());
  const auto refused = TenantPage::Open(Path());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), StatusCode::kResourceExhausted);
  pages.pop_back();
  EXPECT_TRUE(TenantPage::Open(Path()));
}

TEST_F(TenantPageTest, WhatIsNoPageIsRefused) {
  std::ofstream(Path()) << "something else, of which nobody knows what it is";
  const auto page = TenantPage::Open(Path());
  ASSERT_FALSE(page);
  EXPECT_EQ(page.error().code(), StatusCode::kFailedPrecondition);
}

// Between opening and locking: what is counted in a file without a name nobody else would see.
TEST_F(TenantPageTest, APageThatIsRemovedAtThisMomentIsMadeAnew) {
  Open();
  const int remover = ::open(Path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(remover, LOCK_EX), 0);
  const auto num_open = [this] {
    return std::ranges::count_if(std::filesystem::directory_iterator("/proc/self/fd"), [this](const auto& entry) {
      std::error_code gone;
      return std::filesystem::read_symlink(entry, gone) == Path();
    });
  };
  std::unique_ptr<TenantPage> late;
  std::thread executor([&] { late = Open(); });
  while (num_open() < 2) std::this_thread::yield();
  ::unlink(Path().c_str());
  ::close(remover);
  executor.join();
  ASSERT_NE(late, nullptr);
  ASSERT_TRUE(late->Reserve(0, kLimit, kLimit));
  EXPECT_FALSE(Open()->Reserve(0, 1, kLimit)) << "both count in the same page";
}

TEST_F(TenantPageTest, ThreadsAndExecutorsNeverHoldMoreThanTheLimit) {
  const auto one = Open(), other = Open();
  std::atomic<bool> has_exceeded{false};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 6; ++seed) {
    threads.emplace_back([&, seed] {
      TenantPage& page = seed % 2 == 0 ? *one : *other;
      std::mt19937 random(seed);
      uint64_t held = 0;
      for (int i = 0; i < 3000; ++i) {
        const uint64_t size = random() % 400;
        if (page.Reserve(0, size, kLimit)) held += size;
        if (page.HeldBytes(0) > kLimit) has_exceeded = true;
        const uint64_t back = held == 0 ? 0 : random() % (held + 1);
        page.Return(0, back);
        held -= back;
      }
      page.Return(0, held);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(has_exceeded);
  EXPECT_EQ(one->HeldBytes(0), 0u);
}

// Each would find room for both, looking at one time.
TEST_F(TenantPageTest, OneExecutorWaitsWhileAnotherReserves) {
  const auto page = Open();
  const UniqueFd another(::open(Path().c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(another.get(), LOCK_EX), 0);
  std::atomic<pid_t> thread_id{0};
  std::atomic<bool> has_reserved{false};
  std::thread thread([&] {
    thread_id = ::gettid();
    EXPECT_TRUE(page->Reserve(0, 600, kLimit));
    has_reserved = true;
  });
  while (!has_reserved && !IsAsleep(thread_id)) std::this_thread::yield();
  EXPECT_FALSE(has_reserved);
  EXPECT_EQ(page->HeldBytes(0), 0u);
  ::flock(another.get(), LOCK_UN);
  thread.join();
  EXPECT_EQ(page->HeldBytes(0), 600u);
}

TEST_F(TenantPageTest, SessionsOfATenantHaveOnePage) {
  TenantPages pages(directory_ + "/tenants");
  const auto one = pages.Open("a"), again = pages.Open("a"), other = pages.Open("b");
  ASSERT_TRUE(one && again && other);
  EXPECT_EQ(*one, *again);
  EXPECT_NE(*one, *other);
  EXPECT_TRUE(TenantPages("").Open("a")) << "of this process alone";
}

}  // namespace
}  // namespace tally::server
