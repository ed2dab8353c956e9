#include "server/daemon/tenant_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>

#include "base/mapped_region.h"
#include "base/unique_fd.h"
#include "proto/shm/tenant_page_abi.h"

namespace tally::server {
namespace {

class TenantFilesTest : public ::testing::Test {
 protected:
  TenantFilesTest() {
    char path[] = "/tmp/tenant-files-XXXXXX";
    directory_ = ::mkdtemp(path);
    path_ = directory_ + "/page";
  }
  ~TenantFilesTest() override { std::filesystem::remove_all(directory_); }
  // As an executor has it.
  UniqueFd Make() const {
    UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(::ftruncate(fd.get(), sizeof(shm::TenantPage)), 0);
    return fd;
  }
  void SetUsedUntil(const UniqueFd& fd, int64_t seconds_from_now) const {
    const auto region = MappedRegion::Map(fd.get(), sizeof(shm::TenantPage));
    ASSERT_TRUE(region);
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    reinterpret_cast<shm::TenantPage*>(region->data())->used_until_ns[shm::kTenantDevices - 1] =
        (now.tv_sec + seconds_from_now) * int64_t{1'000'000'000};
  }
  bool IsThere() const { return std::filesystem::exists(path_); }

  std::string directory_, path_;
};

TEST_F(TenantFilesTest, WhatNobodyHasGoes) {
  EXPECT_TRUE(RemoveTenantPage(path_)) << "it never was there";
  Make();
  EXPECT_TRUE(RemoveTenantPage(path_));
  EXPECT_FALSE(IsThere());
}

// With a second page under its name the tenant would have its quota twice.
TEST_F(TenantFilesTest, WhatAnExecutorHasStays) {
  for (const off_t slot : {off_t{0}, off_t{shm::kTenantSlots - 1}}) {
    UniqueFd executor = Make();
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = slot;
    lock.l_len = 1;
    ASSERT_EQ(::fcntl(executor.get(), F_OFD_SETLK, &lock), 0);
    EXPECT_FALSE(RemoveTenantPage(path_));
    EXPECT_TRUE(IsThere());
    executor.Reset();
    EXPECT_TRUE(RemoveTenantPage(path_));
  }
}

TEST_F(TenantFilesTest, WhatAnExecutorIsAboutToHaveStays) {
  UniqueFd executor = Make();
  ASSERT_EQ(::flock(executor.get(), LOCK_EX), 0);
  EXPECT_FALSE(RemoveTenantPage(path_));
  EXPECT_TRUE(IsThere());
}

// Else a share would be none for who starts a new program for each kernel.
TEST_F(TenantFilesTest, TimeThatIsNotPaidForIsKept) {
  const UniqueFd fd = Make();
  SetUsedUntil(fd, 60);
  EXPECT_FALSE(RemoveTenantPage(path_));
  EXPECT_TRUE(IsThere());
  SetUsedUntil(fd, -1);
  EXPECT_TRUE(RemoveTenantPage(path_));
}

TEST_F(TenantFilesTest, WhatIsNoPageGoes) {
  std::filesystem::create_symlink("/dev/null", path_);
  EXPECT_TRUE(RemoveTenantPage(path_));
  EXPECT_FALSE(std::filesystem::is_symlink(path_));
  const UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  EXPECT_TRUE(RemoveTenantPage(path_)) << "it is empty";
  EXPECT_FALSE(IsThere());
}

}  // namespace
}  // namespace tally::server
