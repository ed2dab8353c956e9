#include "proto/shm/records_abi.h"

#include <gtest/gtest.h>

#include "proto/shm/channel_abi.h"
#include "tests/proto/twin.h"

namespace tally::shm {
namespace {

EXPECT_PLAIN(DeviceDescription, 1112);
EXPECT_FIELD(DeviceDescription, uuid, 256, 16);
EXPECT_FIELD(DeviceDescription, total_memory_bytes, 272, 8);
EXPECT_FIELD(DeviceDescription, attribute, 296, 640);
EXPECT_FIELD(DeviceDescription, attribute_valid, 936, 160);
EXPECT_FIELD(DeviceDescription, can_access_peer, 1104, 8);

EXPECT_PLAIN(OpenContext, 16);
EXPECT_PLAIN(CloseContext, 8);
EXPECT_PLAIN(WriteImage, 24);
EXPECT_FIELD(WriteImage, total_bytes, 8, 8);
EXPECT_PLAIN(LoadImage, 32);
EXPECT_FIELD(LoadImage, num_options, 16, 4);
EXPECT_PLAIN(LoadedImage, 16);
EXPECT_PLAIN(GetByName, 16);
EXPECT_PLAIN(KernelDescription, 88);
EXPECT_FIELD(KernelDescription, attribute, 16, 64);
EXPECT_PLAIN(GlobalDescription, 24);
EXPECT_FIELD(GlobalDescription, is_managed, 16, 4);
EXPECT_PLAIN(LinkAdd, 32);
EXPECT_PLAIN(ReadLinked, 24);

EXPECT_PLAIN(Launch, 56);
EXPECT_FIELD(Launch, function, 0, 8);
EXPECT_FIELD(Launch, stream, 8, 8);
EXPECT_FIELD(Launch, grid, 16, 12);
EXPECT_FIELD(Launch, block, 28, 12);
EXPECT_FIELD(Launch, shared_bytes, 40, 4);
EXPECT_FIELD(Launch, parameter_bytes, 44, 4);
EXPECT_FIELD(Launch, num_attributes, 48, 2);
EXPECT_FIELD(Launch, flags, 50, 2);

EXPECT_PLAIN(Copy, 40);
EXPECT_FIELD(Copy, stream, 24, 8);
EXPECT_FIELD(Copy, destination_place, 32, 4);
EXPECT_PLAIN(BoxSide, 56);
EXPECT_PLAIN(CopyBox, 152);
EXPECT_FIELD(CopyBox, source, 56, 56);
EXPECT_FIELD(CopyBox, width_bytes, 112, 8);
EXPECT_PLAIN(Fill, 48);
EXPECT_PLAIN(BeginCapture, 32);
EXPECT_PLAIN(CaptureState, 24);
EXPECT_PLAIN(GraphNodeTarget, 32);

TEST(RecordsAbi, HandlesKeepTheirParts) {
  const uint64_t handle = MakeHandle(HandleKind::kEvent, 200, true, kMaxHandleIndex);
  EXPECT_EQ(HandleKindOf(handle), HandleKind::kEvent);
  EXPECT_EQ(HandleIndexOf(handle), kMaxHandleIndex);
  EXPECT_TRUE(IsServerNamed(handle));
  EXPECT_FALSE(IsServerNamed(MakeHandle(HandleKind::kEvent, 0, false, 1)));
  EXPECT_FALSE(IsServerNamed(MakeHandle(HandleKind::kEvent, 200, false, kMaxHandleIndex)));
  EXPECT_EQ(HandleIndexOf(MakeHandle(HandleKind::kEvent, 200, true, 1)), 1u);
  EXPECT_EQ(handle & 0xf, 0u) << "low bits stay free: libraries align-check handles";
}

TEST(RecordsAbi, NoHandleCollidesWithCudasReservedStreams) {
  EXPECT_GT(MakeHandle(HandleKind::kStream, 0, false, 0), kPerThreadStream);
}

// The largest launch (every attribute, the largest parameters) must fit one
// record.
TEST(RecordsAbi, LargestLaunchFitsARecord) {
  EXPECT_LE(sizeof(RequestHeader) + sizeof(GraphNodeTarget) + sizeof(Launch) +
                kMaxLaunchAttributes * kLaunchAttributeBytes + kMaxParameterBytes + 64,
            kMaxRequestBytes);
  EXPECT_LE(sizeof(RequestHeader) + sizeof(CopyBox) + kMaxInlineBytes, kMaxRequestBytes);
}

}  // namespace
}  // namespace tally::shm
