#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "base/unique_fd.h"

namespace tally::server {
namespace {

volatile char* truncated = nullptr;

void PutZerosThere(int) {
  ::mmap(const_cast<char*>(truncated), 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

// As threads of drivers do: everything that can be blocked is.
class BlockedByADriver : public testing::TestWithParam<int (*)(int, const sigset_t*, sigset_t*)> {};

TEST_P(BlockedByADriver, WhatAThreadRaisesItselfStaysDeliverable) {
  const UniqueFd file(::memfd_create("tally-test", MFD_CLOEXEC));
  truncated = static_cast<char*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
  ASSERT_NE(truncated, MAP_FAILED);
  struct sigaction action {
  }, before{};
  action.sa_handler = &PutZerosThere;
  ASSERT_EQ(::sigaction(SIGBUS, &action, &before), 0);
  char found = 1;
  bool is_term_blocked = false;
  std::thread([&] {
    sigset_t all, now;
    ::sigfillset(&all);
    GetParam()(SIG_SETMASK, &all, nullptr);
    found = truncated[0];
    ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
    is_term_blocked = ::sigismember(&now, SIGTERM) == 1;
  }).join();
  EXPECT_EQ(found, 0);
  EXPECT_TRUE(is_term_blocked);
  ::sigaction(SIGBUS, &before, nullptr);
  ::munmap(const_cast<char*>(truncated), 4096);
}

INSTANTIATE_TEST_SUITE_P(Calls, BlockedByADriver, testing::Values(&::pthread_sigmask, &::sigprocmask));

}  // namespace
}  // namespace tally::server
