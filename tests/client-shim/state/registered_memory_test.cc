#include "client-shim/state/registered_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <mutex>

#include "base/mapped_region.h"
#include "client-shim/state/own_mappings.h"
#include "tests/client-shim/state/private_pages.h"

namespace tally::client_shim {
namespace {

TEST(RegisteredMemory, IsTheFilesPagesUntilItIsGivenBack) {
  char* pages = MapPrivate();
  ASSERT_NE(pages, nullptr);
  std::strcpy(pages + 100, "before");
  auto memory = CreateSealedMemfd("tally-test", kTestBytes);
  ASSERT_TRUE(memory);
  auto other = MappedRegion::Map(memory->get(), kTestBytes);
  ASSERT_TRUE(other);
  auto* view = reinterpret_cast<char*>(other->data());
  RegisteredMemory registered;
  ASSERT_TRUE(registered.Share(Address(pages), kTestBytes, memory->get()));
  EXPECT_STREQ(view + 100, "before");
  std::strcpy(view + 100, "shared");
  EXPECT_STREQ(pages + 100, "shared");
  registered.GiveBack(Address(pages));
  std::strcpy(view + 100, "no longer");
  EXPECT_STREQ(pages + 100, "shared");
  registered.GiveBack(Address(pages));  // nothing of ours is there any more
  EXPECT_STREQ(pages + 100, "shared");
  ::munmap(pages, kTestBytes);
}

TEST(RegisteredMemory, LeavesAloneWhatTheProgramMappedThereSince) {
  char* pages = MapPrivate();
  ASSERT_NE(pages, nullptr);
  auto memory = CreateSealedMemfd("tally-test", kTestBytes);
  ASSERT_TRUE(memory);
  RegisteredMemory registered;
  ASSERT_TRUE(registered.Share(Address(pages), kTestBytes, memory->get()));
  auto own = CreateSealedMemfd("tally-test-other", kPageBytes);
  ASSERT_TRUE(own);
  ::munmap(pages, kPageBytes);
  ASSERT_NE(::mmap(pages + kPageBytes, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, own->get(), 0),
            MAP_FAILED);
  registered.GiveBack(Address(pages));
  const auto left = MappingsWithin(Address(pages), Address(pages) + kPageBytes);
  EXPECT_TRUE(left.empty() || left.front().begin > Address(pages));
  const auto others = MappingsWithin(Address(pages) + kPageBytes, Address(pages) + 2 * kPageBytes);
  ASSERT_EQ(others.size(), 1u);
  EXPECT_TRUE(others.front().is_shared);
  const auto rest = MappingsWithin(Address(pages) + 2 * kPageBytes, Address(pages) + kTestBytes);
  for (const Mapping& mapping : rest) EXPECT_FALSE(mapping.is_shared);
  ::munmap(pages, kTestBytes);
}

TEST(RegisteredMemory, IsCopiedForTheChildOfAFork) {
  char* pages = MapPrivate();
  ASSERT_NE(pages, nullptr);
  auto memory = CreateSealedMemfd("tally-test", kTestBytes);
  ASSERT_TRUE(memory);
  RegisteredMemory registered;
  ASSERT_TRUE(registered.Share(Address(pages), kTestBytes, memory->get()));
  std::strcpy(pages, "at the fork");
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  registered.BeforeFork();
  const pid_t child = ::fork();
  if (child == 0) {
    registered.AfterForkInChild();
    char go = 0;
    if (::read(ends[0], &go, 1) != 1) ::_exit(3);
    const bool is_copy = std::strcmp(pages, "at the fork") == 0;
    std::strcpy(pages, "child's own");
    ::_exit(is_copy ? 0 : 1);
  }
  registered.AfterForkInParent();
  std::strcpy(pages, "parent's own");
  ASSERT_EQ(::write(ends[1], "", 1), 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_STREQ(pages, "parent's own");
  const std::lock_guard is_unlocked(registered.mutex());
  ::munmap(pages, kTestBytes);
}

}  // namespace
}  // namespace tally::client_shim
