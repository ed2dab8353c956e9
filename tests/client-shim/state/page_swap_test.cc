#include "client-shim/state/page_swap.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/mapped_region.h"
#include "client-shim/state/own_mappings.h"
#include "tests/client-shim/state/private_pages.h"

namespace {

// The fixed mapping that fails as if the system had no more; none if it is negative.
int g_fixed_mappings_until_failure = -1;

}  // namespace

extern "C" {
void* __real_mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset);
// Linked in place of mmap (CMakeLists.txt).
void* __wrap_mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  if ((flags & MAP_FIXED) != 0 && g_fixed_mappings_until_failure >= 0 && g_fixed_mappings_until_failure-- == 0) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return __real_mmap(address, size, protection, flags, fd, offset);
}
}

namespace tally::client_shim {
namespace {

TEST(PageSwap, KeepsBytesAndWhatOthersWriteMeanwhile) {
  char* pages = MapPrivate();
  ASSERT_NE(pages, nullptr);
  for (size_t i = 0; i < kTestBytes; ++i) pages[i] = static_cast<char>(i * 7);
  // A counter on each page, each with a thread of its own that misses no number.
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  std::array<std::atomic<uint32_t>, 3> written{};
  const size_t page_of[3] = {0, 4, kTestPages - 1};
  for (int i = 0; i < 3; ++i) {
    auto* word = reinterpret_cast<volatile uint32_t*>(pages + page_of[i] * kPageBytes);
    *word = 0;
    writers.emplace_back([&, i, word] {
      uint32_t count = 0;
      while (!stop) {
        *word = *word + 1;
        ++count;
      }
      written[i] = count;
    });
  }
  for (int round = 0; round < 50; ++round) {
    auto memory = CreateSealedMemfd("tally-test", kTestBytes);
    ASSERT_TRUE(memory);
    ASSERT_TRUE(SwapForShared(Address(pages), kTestBytes, memory->get()));
    ASSERT_TRUE(SwapForPrivate(Address(pages), kTestBytes));
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  for (int i = 0; i < 3; ++i) {
    uint32_t found = 0;
    std::memcpy(&found, pages + page_of[i] * kPageBytes, 4);
    EXPECT_EQ(found, written[i]) << "page " << page_of[i];
  }
  for (size_t i = 0; i < kTestBytes; ++i) {
    if (i % kPageBytes >= 4) {
      ASSERT_EQ(pages[i], static_cast<char>(i * 7)) << i;
    }
  }
  ::munmap(pages, kTestBytes);
}

// The program knows only that its registration failed: its memory must be its own again, with all that it wrote.
TEST(PageSwap, ThatFailsHalfWayLeavesEverythingAsItWas) {
  for (const int num_replaced : {0, 1, 2}) {  // the first page and the last go by themselves
    char* pages = MapPrivate();
    ASSERT_NE(pages, nullptr);
    for (size_t i = 0; i < kTestBytes; ++i) pages[i] = static_cast<char>(i * 7);
    auto memory = CreateSealedMemfd("tally-test", kTestBytes);
    ASSERT_TRUE(memory);
    g_fixed_mappings_until_failure = num_replaced;
    EXPECT_FALSE(SwapForShared(Address(pages), kTestBytes, memory->get()));
    EXPECT_EQ(g_fixed_mappings_until_failure, -1) << "it never came so far";
    for (const Mapping& mapping : MappingsWithin(Address(pages), Address(pages) + kTestBytes))
      EXPECT_FALSE(mapping.is_shared) << num_replaced;
    EXPECT_EQ(FindBacking(Address(pages), Address(pages) + kTestBytes).kind, Backing::kOwnPages);
    for (size_t i = 0; i < kTestBytes; ++i) ASSERT_EQ(pages[i], static_cast<char>(i * 7)) << i;
    ::munmap(pages, kTestBytes);
  }
}

}  // namespace
}  // namespace tally::client_shim
