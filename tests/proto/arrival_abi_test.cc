#include "proto/shm/arrival_abi.h"

#include "tests/proto/twin.h"

namespace tally::shm {
namespace {

EXPECT_FIELD(ArrivalPage, bell, 0, 4);
EXPECT_FIELD(ArrivalPage, num_declared, 4, 4);
EXPECT_FIELD(ArrivalPage, expected_from_ns, 8, 8);
EXPECT_FIELD(ArrivalPage, expected_until_ns, 16, 8);
EXPECT_FIELD(ArrivalPage, is_awaited, 64, 4);
EXPECT_FIELD(ArrivalPage, is_busy, 68, 4);
EXPECT_FIELD(ArrivalPage, num_begun, 72, 8);
EXPECT_FIELD(ArrivalPage, begun_at_ns, 128, 64);
static_assert(kArrivalOffset == 1024, "the page moved: raise kProtocolVersion");

}  // namespace
}  // namespace tally::shm
