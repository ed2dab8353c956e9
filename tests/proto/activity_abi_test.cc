#include "proto/shm/activity_abi.h"

#include <gtest/gtest.h>

#include "tests/proto/twin.h"

namespace tally::shm {
namespace {

EXPECT_FIELD(DeviceActivity, num_busy, 0, 4);
EXPECT_FIELD(DeviceActivity, bell, 4, 4);
EXPECT_FIELD(DeviceActivity, num_waiting, 8, 4);
EXPECT_FIELD(DeviceActivity, num_awaiting_busy, 12, 4);
EXPECT_FIELD(DeviceActivity, opens_at_ns, 16, 8);
EXPECT_FIELD(DeviceActivity, busy_bell, 24, 4);
EXPECT_FIELD(DeviceActivity, num_present, 28, 4);
EXPECT_FIELD(DeviceActivity, busy_since_ns, 32, 8);
EXPECT_FIELD(ActivitySlot, owner_pid, 0, 4);
EXPECT_FIELD(ActivitySlot, busy, 8, 8);
EXPECT_FIELD(ActivitySlot, present, 16, 8);
EXPECT_FIELD(ActivityPage, magic, 0, 4);
EXPECT_FIELD(ActivityPage, device, 64, 4096);
EXPECT_FIELD(ActivityPage, slot, 4160, 2048);

TEST(ActivityAbi, OneBusyBitPerDevice) { EXPECT_LE(kActivityDevices, 64u); }

}  // namespace
}  // namespace tally::shm
