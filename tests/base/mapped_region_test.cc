#include "base/mapped_region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

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

}  // namespace
}  // namespace tally
