#include "proto/shm/mirror_abi.h"

#include <gtest/gtest.h>

#include "tests/proto/twin.h"

namespace tally::shm {
namespace {

EXPECT_FIELD(MirrorCommand, kind, 0, 4);
EXPECT_FIELD(MirrorCommand, stream, 4, 4);
EXPECT_FIELD(MirrorCommand, allocation, 8, 4);
EXPECT_FIELD(MirrorCommand, gpu, 12, 4);
EXPECT_FIELD(MirrorCommand, image, 16, 4);
EXPECT_FIELD(MirrorCommand, function, 20, 4);
EXPECT_FIELD(MirrorCommand, value, 24, 4);
EXPECT_FIELD(MirrorCommand, shared_bytes, 28, 4);
EXPECT_FIELD(MirrorCommand, address, 32, 8);
EXPECT_FIELD(MirrorCommand, offset, 40, 8);
EXPECT_FIELD(MirrorCommand, num_bytes, 48, 8);
EXPECT_FIELD(MirrorCommand, row_bytes, 56, 8);
EXPECT_FIELD(MirrorCommand, pitch, 64, 8);
EXPECT_FIELD(MirrorCommand, rows, 72, 8);
EXPECT_FIELD(MirrorCommand, grid, 80, 12);
EXPECT_FIELD(MirrorCommand, block, 92, 12);
EXPECT_FIELD(MirrorCommand, cluster, 104, 12);
EXPECT_FIELD(MirrorCommand, task, 116, 4);
EXPECT_PLAIN(MirrorCommand, 120);
EXPECT_FIELD(MirrorSlot, done, 0, 4);
EXPECT_FIELD(MirrorSlot, result, 4, 4);
EXPECT_FIELD(MirrorSlot, command, 64, 120);
EXPECT_FIELD(MirrorSlot, bytes, 192, 4096);
EXPECT_FIELD(MirrorHeader, magic, 0, 4);
EXPECT_FIELD(MirrorHeader, num_posted, 8, 4);
EXPECT_FIELD(MirrorHeader, state, 64, 4);
EXPECT_FIELD(MirrorHeader, error, 68, 4);
EXPECT_FIELD(MirrorHeader, fetched_bytes, 72, 8);
EXPECT_FIELD(MirrorHeader, written_back_bytes, 80, 8);
EXPECT_FIELD(MirrorPage, slot, 256, 128 * 4288);
EXPECT_PLAIN(MirrorParcel, 8);

// A slot is reused after a whole turn: a completion word of the turn before must not look like this one's.
TEST(MirrorAbi, SlotsDividePositionsWhereTheyWrap) { EXPECT_EQ((uint64_t{1} << 32) % kMirrorSlots, 0u); }

}  // namespace
}  // namespace tally::shm
