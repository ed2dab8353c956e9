#include "server/executor/channel/reply_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tally::server {
namespace {

constexpr uint64_t kRing = shm::kReplyRingBytes;

class ReplyWriterTest : public testing::Test {
 protected:
  // A reply whose record has so many bytes. False: there was no room, and nobody who would make some.
  bool Write(uint32_t record_bytes, std::byte fill = {}) {
    const std::vector<std::byte> payload(record_bytes - sizeof(shm::ReplyHeader), fill);
    return writer_.Write(7, 0, 0, payload, stop_);
  }
  shm::RingState& state() { return region_.header().reply; }
  template <typename T>
  T At(uint64_t position) {
    T value;
    std::memcpy(&value, region_.reply_ring() + position % kRing, sizeof(value));
    return value;
  }

  ChannelRegion region_ = ChannelRegion::Create(0).value();
  ReplyWriter writer_{region_};
  const std::atomic<bool> stop_{true};  // whoever would have to wait gives up at once
};

TEST_F(ReplyWriterTest, WhatPadsTheEndOfTheRingNeedsRoomToo) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Write(kRing / 4));
  ASSERT_TRUE(Write(kRing / 4 - 32));  // 32 bytes are left before the end
  state().read_position = 32;
  EXPECT_FALSE(Write(64)) << "64 bytes are free, 96 are needed";
  EXPECT_EQ(state().write_position, kRing - 32);
  state().read_position = 64;
  EXPECT_TRUE(Write(64, std::byte{5}));
  EXPECT_EQ(state().write_position, kRing + 64);
  const auto padding = At<shm::ReplyHeader>(kRing - 32), reply = At<shm::ReplyHeader>(0);
  EXPECT_EQ(padding.op, 0u);
  EXPECT_EQ(padding.size_bytes, 32u);
  EXPECT_EQ(reply.op, 7u);
  EXPECT_EQ(reply.size_bytes, 64u);
  EXPECT_EQ(reply.payload_bytes, 48u);
  EXPECT_EQ(At<std::byte>(sizeof(reply)), std::byte{5});
}

TEST_F(ReplyWriterTest, RingsForAClientThatSleepsAndForNoOther) {
  ASSERT_TRUE(Write(64));
  EXPECT_EQ(state().data_doorbell, 0u);
  state().reader_waiting = 1;
  ASSERT_TRUE(Write(64));
  EXPECT_EQ(state().data_doorbell, 1u);
  EXPECT_EQ(state().reader_waiting, 0u);
}

TEST_F(ReplyWriterTest, APositionThatCannotBeIsNoRoom) {
  state().read_position = kRing;                              // ahead of what was written
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Write(kRing / 4));  // not looked at before it matters
  state().read_position = 2 * kRing;
  EXPECT_FALSE(Write(64));
}

}  // namespace
}  // namespace tally::server
