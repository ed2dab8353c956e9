#include "proto/shm/tenant_page_abi.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace tally::shm {
namespace {

TEST(TenantPageAbi, IsLaidOutAsItsTwin) {
  struct Twin {
    uint32_t magic, version;
    uint8_t pad[56];
    int64_t used_until_ns[64];
    uint64_t held_bytes[64][64];
  };
  static_assert(std::is_standard_layout_v<TenantPage>);
  EXPECT_EQ(sizeof(TenantPage), sizeof(Twin));
  EXPECT_EQ(offsetof(TenantPage, used_until_ns), offsetof(Twin, used_until_ns));
  EXPECT_EQ(offsetof(TenantPage, slot), offsetof(Twin, held_bytes));
  EXPECT_TRUE(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);
  EXPECT_EQ(kTenantPageVersion, 1u);
}

}  // namespace
}  // namespace tally::shm
