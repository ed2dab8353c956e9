#include "server/executor/session/memory_quota.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

std::shared_ptr<MemoryQuota> QuotaOf(uint64_t session, uint64_t tenant, std::shared_ptr<TenantPage> page = nullptr) {
  if (page == nullptr && tenant != 0) page = *TenantPages("").Open("tenant");
  return std::make_shared<MemoryQuota>(2, session, tenant, std::move(page));
}

TEST(MemoryQuota, WithoutALimitNothingIsCounted) {
  const auto quota = QuotaOf(0, 0);
  const auto charge = TakeCharge(quota, 0, UINT64_MAX);
  ASSERT_TRUE(charge);
  EXPECT_EQ(*charge, nullptr);
  EXPECT_EQ(quota->TotalOf(500), 500u);
  EXPECT_EQ(quota->FreeOf(0, 400), 400u);
}

TEST(MemoryQuota, TheTighterOfTwoLimitsCounts) {
  for (const auto& [session, tenant] : {std::pair{100u, 1000u}, {1000u, 100u}}) {
    const auto quota = QuotaOf(session, tenant);
    EXPECT_FALSE(TakeCharge(quota, 0, 101));
    const auto charge = TakeCharge(quota, 0, 60);
    ASSERT_TRUE(charge);
    EXPECT_EQ(quota->TotalOf(5000), 100u);
    EXPECT_EQ(quota->FreeOf(0, 5000), 40u);
    EXPECT_EQ(quota->FreeOf(0, 30), 30u) << "there is not more of it";
    EXPECT_EQ(quota->FreeOf(1, 5000), 100u) << "of each device";
  }
}

TEST(MemoryQuota, WhatASessionHoldsCountsAgainstItsLimit) {
  const auto quota = QuotaOf(100, 0);
  const auto held = TakeCharge(quota, 0, 60);
  ASSERT_TRUE(held);
  EXPECT_FALSE(TakeCharge(quota, 0, 41)) << "alone it would fit";
  EXPECT_EQ(quota->FreeOf(0, 5000), 40u);
  EXPECT_TRUE(TakeCharge(quota, 0, 40));
  EXPECT_TRUE(TakeCharge(quota, 1, 100)) << "of another device";
}

TEST(MemoryQuota, WhatIsRefusedChangesNothing) {
  const std::shared_ptr<TenantPage> page = *TenantPages("").Open("tenant");
  const auto one = QuotaOf(1000, 100, page), other = QuotaOf(1000, 100, page);
  const auto held = TakeCharge(one, 0, 90);
  EXPECT_FALSE(TakeCharge(other, 0, 11));
  EXPECT_EQ(page->HeldBytes(0), 90u);
  EXPECT_EQ(other->FreeOf(0, 5000), 10u);
  EXPECT_TRUE(TakeCharge(other, 0, 10));
  EXPECT_EQ(page->HeldBytes(0), 90u) << "and is given back with the charge";
}

// Memory opened by its name: the one who made it may be gone.
TEST(MemoryQuota, AChargeIsGivenBackByItsLastHolder) {
  const std::shared_ptr<TenantPage> page = *TenantPages("").Open("tenant");
  auto maker = QuotaOf(0, 100, page);
  SharedCharge made = *TakeCharge(maker, 0, 80);
  maker.reset();
  SharedCharge opened = made;
  made.reset();
  EXPECT_EQ(page->HeldBytes(0), 80u);
  opened.reset();
  EXPECT_EQ(page->HeldBytes(0), 0u);
}

TEST(MemoryQuota, AChargeGrowsIfThereIsRoomAndAlwaysShrinks) {
  const auto quota = QuotaOf(0, 100);
  MemoryCharge charge(quota, 0);
  EXPECT_TRUE(charge.TryResize(70));
  EXPECT_FALSE(charge.TryResize(101));
  EXPECT_EQ(charge.size_bytes(), 70u);
  charge.Resize(150);  // what is there already
  EXPECT_EQ(quota->FreeOf(0, 5000), 0u);
  EXPECT_TRUE(charge.TryResize(120));
  EXPECT_TRUE(charge.TryResize(20));
  EXPECT_EQ(quota->FreeOf(0, 5000), 80u);
}

}  // namespace
}  // namespace tally::server
