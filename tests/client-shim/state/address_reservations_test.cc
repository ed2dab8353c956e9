#include "client-shim/state/address_reservations.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>

namespace tally::client_shim {
namespace {

TEST(AddressReservations, HoldsLargeRangesWhole) {
  AddressReservations reservations;
  constexpr uint64_t kBase = 0x520000000000;
  constexpr uint64_t kSize = uint64_t{160} << 30;
  EXPECT_TRUE(reservations.HoldWhole(kBase, kSize));
  EXPECT_FALSE(reservations.HoldWhole(kBase + kSize / 2, kSize));  // overlaps
  EXPECT_TRUE(reservations.HoldWhole(kBase + kSize, kSize));
  reservations.ReleaseWhole(kBase + kSize, kSize);
  reservations.ReleaseWhole(kBase, kSize);
  EXPECT_TRUE(reservations.HoldWhole(kBase + kSize / 2, kSize));
  reservations.ReleaseWhole(kBase + kSize / 2, kSize);
}

bool IsFree(uint64_t address) {
  void* probe = ::mmap(reinterpret_cast<void*>(address), 4096, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (probe != reinterpret_cast<void*>(address)) return false;
  ::munmap(probe, 4096);
  return true;
}

TEST(AddressReservations, KeepAFewThatWereReleased) {
  AddressReservations reservations;
  constexpr uint64_t kBase = 0x530000000000;
  constexpr uint64_t kGranule = AddressReservations::kGranuleBytes;
  EXPECT_TRUE(reservations.Hold(kBase, kGranule));
  reservations.ReleaseSoon(kBase, kGranule);
  EXPECT_FALSE(IsFree(kBase));
  EXPECT_TRUE(reservations.Hold(kBase, 2 * kGranule)) << "what is kept can be held again, with more";
  // Not many are kept, and none that is held again.
  for (uint64_t i = 2; i < 100; ++i) {
    EXPECT_TRUE(reservations.Hold(kBase + i * kGranule, 100));
    reservations.ReleaseSoon(kBase + i * kGranule, 100);
  }
  EXPECT_FALSE(IsFree(kBase));
  EXPECT_FALSE(IsFree(kBase + kGranule));
  uint64_t num_kept = 0;
  for (uint64_t i = 2; i < 100; ++i) num_kept += IsFree(kBase + i * kGranule) ? 0 : 1;
  EXPECT_LE(num_kept, 32u);
  reservations.ReleaseSoon(kBase, 2 * kGranule);
  EXPECT_TRUE(reservations.HoldWhole(kBase, 128 * kGranule)) << "what is only kept is in nobody's way";
  reservations.ReleaseWhole(kBase, 128 * kGranule);
  EXPECT_TRUE(reservations.Hold(kBase, 1000 * kGranule));
  reservations.ReleaseSoon(kBase, 1000 * kGranule);
  EXPECT_TRUE(IsFree(kBase)) << "large ones go at once";
}

TEST(AddressReservations, ShareGranulesAndRefuseWhatIsMapped) {
  AddressReservations reservations;
  constexpr uint64_t kBase = 0x510000000000;
  constexpr uint64_t kGranule = AddressReservations::kGranuleBytes;
  EXPECT_TRUE(reservations.Hold(kBase, 100));
  EXPECT_TRUE(reservations.Hold(kBase + 512, 2 * kGranule));  // shares the first granule
  EXPECT_FALSE(IsFree(kBase + kGranule));
  reservations.Release(kBase, 100);
  EXPECT_FALSE(IsFree(kBase));
  reservations.Release(kBase + 512, 2 * kGranule);
  EXPECT_TRUE(IsFree(kBase));
  EXPECT_TRUE(IsFree(kBase + kGranule));

  EXPECT_TRUE(reservations.Hold(kBase, 5 * kGranule));
  EXPECT_TRUE(reservations.Hold(kBase + 2 * kGranule, 100));
  reservations.Release(kBase, 5 * kGranule);
  for (const uint64_t granule : {0, 1, 3, 4}) EXPECT_TRUE(IsFree(kBase + granule * kGranule)) << granule;
  EXPECT_FALSE(IsFree(kBase + 2 * kGranule)) << "somebody else holds it";
  reservations.Release(kBase + 2 * kGranule, 100);
  EXPECT_TRUE(IsFree(kBase + 2 * kGranule));

  void* mine = ::mmap(reinterpret_cast<void*>(kBase + kGranule + 4096), 4096, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_NE(mine, MAP_FAILED);
  EXPECT_FALSE(reservations.Hold(kBase, 2 * kGranule));
  EXPECT_TRUE(IsFree(kBase)) << "a failed hold leaves nothing behind";
  ::munmap(mine, 4096);

  // Some of it was held before, and what is behind that is somebody else's.
  EXPECT_TRUE(reservations.Hold(kBase + kGranule, 100));
  mine = ::mmap(reinterpret_cast<void*>(kBase + 3 * kGranule), 4096, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_NE(mine, MAP_FAILED);
  EXPECT_FALSE(reservations.Hold(kBase, 5 * kGranule));
  EXPECT_TRUE(IsFree(kBase));
  EXPECT_FALSE(IsFree(kBase + kGranule));
  reservations.Release(kBase + kGranule, 100);
  EXPECT_TRUE(IsFree(kBase + kGranule));
  ::munmap(mine, 4096);
}

}  // namespace
}  // namespace tally::client_shim
