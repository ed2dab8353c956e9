#include "base/mapped_region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <utility>

namespace tally {
namespace {

constexpr size_t kBytes = 1 << 16;

TEST(SealedMemfd, CannotShrinkGrowOrBeUnsealed) {
  auto fd = CreateSealedMemfd("test", kBytes);
  ASSERT_TRUE(fd) << fd.error().ToString();
  EXPECT_NE(::ftruncate(fd->get(), 0), 0);
  EXPECT_NE(::ftruncate(fd->get(), 2 * kBytes), 0);
  EXPECT_NE(::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_TRUE(CheckSealedMemfd(fd->get(), kBytes).ok());
  EXPECT_FALSE(CheckSealedMemfd(fd->get(), kBytes + 1).ok());
}

TEST(SealedMemfd, AnUnsealedDescriptorIsRefused) {
  UniqueFd fd(::memfd_create("plain", MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fd.get(), kBytes), 0);
  EXPECT_EQ(CheckSealedMemfd(fd.get(), kBytes).code(), StatusCode::kInvalidArgument);
}

TEST(SealedMemfd, EverySealIsAskedFor) {
  for (const int seal : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL}) {
    UniqueFd fd(::memfd_create("in part", MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(fd.get(), kBytes), 0);
    ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seal), 0);
    EXPECT_EQ(CheckSealedMemfd(fd.get(), kBytes).code(), StatusCode::kInvalidArgument) << seal;
  }
}

TEST(SealedMemfd, HasThePagesThatWereReservedOrCommitted) {
  constexpr size_t kReserved = kBytes / 4;
  auto fd = CreateSealedMemfd("test", kBytes, kReserved);
  ASSERT_TRUE(fd) << fd.error().ToString();
  EXPECT_TRUE(CheckSealedMemfd(fd->get(), kBytes).ok());
  const auto bytes_there = [&] {
    struct stat status {};
    EXPECT_EQ(::fstat(fd->get(), &status), 0);
    return static_cast<size_t>(status.st_blocks) * 512;
  };
  EXPECT_EQ(bytes_there(), kReserved);
  auto region = MappedRegion::Map(fd->get(), kBytes);
  ASSERT_TRUE(region);
  EXPECT_TRUE(CommitPages(region->data() + kBytes / 2, kBytes / 4).ok());
  EXPECT_EQ(bytes_there(), kReserved + kBytes / 4);
  region->data()[kBytes - 1] = std::byte{1};  // without: at the writer's risk
  void *gone = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  ASSERT_EQ(::munmap(gone, kBytes), 0);
  EXPECT_FALSE(CommitPages(gone, kBytes).ok());
}

TEST(MappedRegion, TwoMappingsSeeTheSameBytes) {
  auto fd = CreateSealedMemfd("test", kBytes);
  ASSERT_TRUE(fd);
  auto first = MappedRegion::Map(fd->get(), kBytes);
  auto second = MappedRegion::Map(fd->get(), kBytes);
  ASSERT_TRUE(first && second);
  std::memcpy(first->data(), "tally", 5);
  EXPECT_EQ(std::memcmp(second->data(), "tally", 5), 0);
}

TEST(MappedRegion, NeverReplacesWhatIsMapped) {
  auto fd = CreateSealedMemfd("test", kBytes);
  auto first = MappedRegion::Map(fd->get(), kBytes);
  ASSERT_TRUE(first);
  EXPECT_EQ(MappedRegion::MapAt(fd->get(), kBytes, first->data()).error().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(MappedRegion::ReserveAt(first->data(), kBytes).error().code(), StatusCode::kAlreadyExists);
  void *const address = first->data();
  first->Reset();
  EXPECT_TRUE(MappedRegion::MapAt(fd->get(), kBytes, address));
}

TEST(MappedRegion, WhatIsAssignedOverIsUnmapped) {
  auto fd = CreateSealedMemfd("test", kBytes);
  auto first = MappedRegion::Map(fd->get(), kBytes);
  auto second = MappedRegion::Map(fd->get(), kBytes);
  ASSERT_TRUE(first && second);
  void *const gone = first->data();
  void *const kept = second->data();
  *first = std::move(*second);
  EXPECT_EQ(first->data(), kept);
  EXPECT_FALSE(second->valid());
  EXPECT_NE(::msync(gone, kBytes, MS_ASYNC), 0);
  second->Reset();
  EXPECT_EQ(::msync(kept, kBytes, MS_ASYNC), 0);
}

}  // namespace
}  // namespace tally
