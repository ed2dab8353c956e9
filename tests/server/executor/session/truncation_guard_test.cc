#include "server/executor/session/truncation_guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace tally::server {
namespace {

constexpr size_t kSize = 4 * 4096;

// A file in memory, mapped shared, that then becomes shorter.
volatile char* MapAndTruncate(UniqueFd* file) {
  *file = UniqueFd(::memfd_create("tally-test", 0));
  if (::ftruncate(file->get(), kSize) != 0) return nullptr;
  void* mapped = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* bytes = static_cast<volatile char*>(mapped);
  for (size_t i = 0; i < kSize; i += 4096) bytes[i] = 'x';
  return ::ftruncate(file->get(), 4096) == 0 ? bytes : nullptr;
}

TEST(TruncationGuard, PutsZerosWhereAFileHasBecomeShorter) {
  UniqueFd file;
  volatile char* bytes = MapAndTruncate(&file);
  ASSERT_NE(bytes, nullptr);
  ASSERT_TRUE(TruncationGuard::Cover(reinterpret_cast<uint64_t>(bytes), kSize));
  EXPECT_EQ(bytes[0], 'x');
  EXPECT_EQ(bytes[2 * 4096], 0);
  bytes[3 * 4096 + 5] = 'y';  // writes too
  EXPECT_EQ(bytes[3 * 4096 + 5], 'y');
  TruncationGuard::Uncover(reinterpret_cast<uint64_t>(bytes));
  ::munmap(const_cast<char*>(bytes), kSize);
}

TEST(TruncationGuardDeathTest, LetsOtherBusErrorsEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ::signal(SIGBUS, SIG_DFL);  // the sanitizers have a handler of their own, which ends a process another way
  EXPECT_EXIT(
      {
        UniqueFd covered_file;
        UniqueFd file;
        volatile char* covered = MapAndTruncate(&covered_file);
        TruncationGuard::Cover(reinterpret_cast<uint64_t>(covered), kSize);
        volatile char* bytes = MapAndTruncate(&file);
        ::_exit(bytes[2 * 4096]);
      },
      ::testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(
      {
        UniqueFd file;
        volatile char* bytes = MapAndTruncate(&file);
        TruncationGuard::Cover(reinterpret_cast<uint64_t>(bytes), kSize);
        TruncationGuard::Uncover(reinterpret_cast<uint64_t>(bytes));
        ::_exit(bytes[2 * 4096]);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace tally::server
