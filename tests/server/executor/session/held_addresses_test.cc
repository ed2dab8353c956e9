#include "server/executor/session/held_addresses.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace tally::server {
namespace {

constexpr uint64_t kBytes = 16 << 20;

bool IsFree(uint64_t address) {
  void* got = ::mmap(reinterpret_cast<void*>(address), 4096, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  ::munmap(got, 4096);
  return true;
}

class HeldAddressesTest : public testing::Test {
 protected:
  void SetUp() override {
    addresses_.Hold();
    ASSERT_GT(addresses_.size_bytes(), uint64_t{64} << 30);
    auto fd = CreateSealedMemfd("test", kBytes);
    ASSERT_TRUE(fd) << fd.error().ToString();
    fd_ = std::move(*fd);
  }

  HeldAddresses addresses_;
  UniqueFd fd_;
  const uint64_t inside_ = HeldAddresses::kBegin + (uint64_t{1} << 30);
};

TEST_F(HeldAddressesTest, NewMappingsComeToLieBelow) {
  void* big = ::mmap(nullptr, uint64_t{1} << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(big, MAP_FAILED);
  EXPECT_LT(reinterpret_cast<uint64_t>(big), HeldAddresses::kBegin);
  ::munmap(big, uint64_t{1} << 30);
}

TEST_F(HeldAddressesTest, MapsOverWhatIsHeldAndHoldsItAgain) {
  auto region = addresses_.Map(fd_.get(), kBytes, inside_);
  ASSERT_TRUE(region) << region.error().ToString();
  EXPECT_EQ(reinterpret_cast<uint64_t>(region->data()), inside_);
  auto elsewhere = MappedRegion::Map(fd_.get(), kBytes);
  ASSERT_TRUE(elsewhere);
  std::memcpy(region->data(), "shared", 7);
  EXPECT_STREQ(reinterpret_cast<const char*>(elsewhere->data()), "shared");

  EXPECT_FALSE(addresses_.Map(fd_.get(), kBytes, inside_));
  EXPECT_FALSE(addresses_.Map(fd_.get(), kBytes, inside_ + kBytes / 2));
  EXPECT_FALSE(addresses_.Map(fd_.get(), kBytes, inside_ - kBytes / 2));

  addresses_.Unmap(std::move(*region));
  EXPECT_FALSE(IsFree(inside_));
  auto again = addresses_.Map(fd_.get(), kBytes, inside_ - kBytes / 2);
  EXPECT_TRUE(again) << again.error().ToString();
}

TEST_F(HeldAddressesTest, MapsWhereNothingIsElsewhere) {
  const uint64_t outside = HeldAddresses::kBegin - (uint64_t{48} << 30);  // where the thread sanitizer lets memory be
  ASSERT_TRUE(IsFree(outside));
  auto region = addresses_.Map(fd_.get(), kBytes, outside);
  ASSERT_TRUE(region) << region.error().ToString();
  EXPECT_FALSE(addresses_.Map(fd_.get(), kBytes, outside));
  addresses_.Unmap(std::move(*region));
  EXPECT_TRUE(IsFree(outside));
}

}  // namespace
}  // namespace tally::server
