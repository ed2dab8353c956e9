#include "proto/shm/channel_abi.h"

#include <gtest/gtest.h>

#include "tests/proto/twin.h"

namespace tally::shm {
namespace {

EXPECT_FIELD(RingState, write_position, 0, 8);
EXPECT_FIELD(RingState, read_position, 64, 8);
EXPECT_FIELD(RingState, data_doorbell, 128, 4);
EXPECT_FIELD(RingState, reader_waiting, 132, 4);
EXPECT_FIELD(RingState, space_doorbell, 192, 4);
EXPECT_FIELD(RingState, writer_waiting, 196, 4);

EXPECT_FIELD(ChannelHeader, magic, 0, 4);
EXPECT_FIELD(ChannelHeader, channel_index, 8, 4);
EXPECT_FIELD(ChannelHeader, request_offset, 12, 4);
EXPECT_FIELD(ChannelHeader, reply_offset, 20, 4);
EXPECT_FIELD(ChannelHeader, arena_offset, 28, 4);
EXPECT_FIELD(ChannelHeader, request, 64, 256);
EXPECT_FIELD(ChannelHeader, reply, 320, 256);

EXPECT_FIELD(SessionHeader, next_sequence_number, 64, 8);
EXPECT_FIELD(SessionHeader, async_error, 128, 4);
EXPECT_FIELD(SessionHeader, sticky_error, 132, 4);

EXPECT_PLAIN(RequestHeader, 32);
EXPECT_FIELD(RequestHeader, size_bytes, 0, 4);
EXPECT_FIELD(RequestHeader, op, 4, 2);
EXPECT_FIELD(RequestHeader, flags, 6, 2);
EXPECT_FIELD(RequestHeader, sequence_number, 8, 8);
EXPECT_FIELD(RequestHeader, context, 16, 4);
EXPECT_FIELD(RequestHeader, payload_bytes, 20, 4);

EXPECT_PLAIN(ReplyHeader, 16);
EXPECT_FIELD(ReplyHeader, cuda_result, 8, 4);
EXPECT_FIELD(ReplyHeader, payload_bytes, 12, 4);

TEST(ChannelAbi, RegionsDoNotOverlapAndStayAligned) {
  EXPECT_GE(kHeaderBytes, sizeof(ChannelHeader));
  EXPECT_GE(kHeaderBytes, sizeof(SessionHeader));
  EXPECT_EQ(kRequestRingBytes & (kRequestRingBytes - 1), 0u) << "positions are masked";
  EXPECT_EQ(kReplyRingBytes & (kReplyRingBytes - 1), 0u);
  EXPECT_EQ((kHeaderBytes + kRequestRingBytes + kReplyRingBytes) % 4096, 0u) << "the arena is registered by pages";
  EXPECT_EQ(kChannelRegionBytes, kHeaderBytes + kRequestRingBytes + kReplyRingBytes + kArenaChunkBytes * kArenaChunks);
}

TEST(ChannelAbi, FlagsAreWhatPeersOfTheSameVersionMean) {
  EXPECT_EQ(kWantReply, 1);
  EXPECT_EQ(kReturnsEarly, 2);
  EXPECT_EQ(kOutputPending, 1);
}

// A record of the largest size fits an empty ring even if padding takes what is
// left before its end.
TEST(ChannelAbi, LargestRecordAlwaysFits) {
  EXPECT_LE(2 * kMaxRequestBytes, kRequestRingBytes);
  EXPECT_LE(2 * kMaxReplyBytes, kReplyRingBytes);
}

}  // namespace
}  // namespace tally::shm
