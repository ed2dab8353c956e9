#include "client-shim/state/own_mappings.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "base/unique_fd.h"
#include "tests/client-shim/state/private_pages.h"

namespace tally::client_shim {
namespace {

TEST(FindBacking, TellsOwnPagesFromSharedFilesAndHoles) {
  char* pages = MapPrivate();
  ASSERT_NE(pages, nullptr);
  EXPECT_EQ(FindBacking(Address(pages), Address(pages) + kTestBytes).kind, Backing::kOwnPages);
  ::mprotect(pages + kPageBytes, kPageBytes, PROT_READ);
  EXPECT_EQ(FindBacking(Address(pages), Address(pages) + kTestBytes).kind, Backing::kNothing);
  ::munmap(pages + kPageBytes, kPageBytes);
  EXPECT_EQ(FindBacking(Address(pages), Address(pages) + kTestBytes).kind, Backing::kNothing);
  EXPECT_EQ(FindBacking(Address(pages), Address(pages) + kPageBytes).kind, Backing::kOwnPages);
  ::munmap(pages, kTestBytes);

  char name[] = "/dev/shm/tally-test-XXXXXX";
  UniqueFd file(::mkstemp(name));
  ASSERT_TRUE(file.valid());
  ASSERT_EQ(::ftruncate(file.get(), kTestBytes), 0);
  void* shared = ::mmap(nullptr, kTestBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(shared, MAP_FAILED);
  const uint64_t second_page = Address(shared) + kPageBytes;
  RangeBacking named = FindBacking(second_page, Address(shared) + kTestBytes);
  EXPECT_EQ(named.kind, Backing::kFile);
  EXPECT_EQ(named.file_offset_bytes, kPageBytes);
  EXPECT_TRUE(named.file.valid());
  ::unlink(name);
  EXPECT_TRUE(FindBacking(second_page, second_page + kPageBytes).file.valid()) << "by the open descriptor";
  // Another file under the same name is not taken for it.
  const UniqueFd other(::open(name, O_RDWR | O_CREAT, 0600));
  struct stat mine {
  }, found{};
  RangeBacking again = FindBacking(second_page, second_page + kPageBytes);
  ASSERT_TRUE(again.file.valid());
  ::fstat(file.get(), &mine);
  ::fstat(again.file.get(), &found);
  EXPECT_EQ(mine.st_ino, found.st_ino);
  ::unlink(name);
  ::munmap(shared, kTestBytes);
}

}  // namespace
}  // namespace tally::client_shim
