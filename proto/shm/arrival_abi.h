// What a client and its executor tell each other about work that is expected (docs/arrival-hints.md): a part of the
// session region (channel_abi.h), used once the client has asked for it with SessionRequestKind::kOpenArrivals.
//
//   client                                           executor
//   expected_from_ns, expected_until_ns, bell += 1   -> sleeps on `bell`; a moment before that it has the GPU turn to
//   it learns from when work really began               <- begun_at_ns[num_begun % kArrivalTimes], num_begun += 1
//
// TRUST. The client may write anything at any time. The executor reads each field once and bounds it; what it does for
// an expectation is paid for from a budget (scheduler/notice_budget.h). A torn pair of times is a wrong expectation.
//
// Times are of CLOCK_MONOTONIC. In a time namespace of its own a client learns nothing, since nothing it sees fits.
//
// Behaviour lives in client-shim/arrivals, client-shim/transport/expected_work.h and
// server/executor/session/expected_work.h; tests/proto/arrival_abi_test.cc pins the layout.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/shm/channel_abi.h"

namespace tally::shm {

inline constexpr uint32_t kArrivalTimes = 8;  // a power of two

struct alignas(64) ArrivalPage {
  // By the client.
  std::atomic<uint32_t> bell;          // futex: incremented behind the times
  std::atomic<uint32_t> num_declared;  // how often the program itself said so (tally_expect_work)
  std::atomic<uint64_t> expected_from_ns;
  std::atomic<uint64_t> expected_until_ns;
  uint8_t pad0[40];
  // By the executor.
  std::atomic<uint32_t> is_awaited;  // it sleeps on `bell`: wake it. 0: nobody needs to know now
  std::atomic<uint32_t> is_busy;     // work of this session is on the GPU, as far as is known
  std::atomic<uint64_t> num_begun;   // how often work came while there was none
  uint8_t pad1[48];
  std::atomic<uint64_t> begun_at_ns[kArrivalTimes];  // when
};
static_assert(sizeof(ArrivalPage) == 192 && offsetof(ArrivalPage, expected_from_ns) == 8 &&
              offsetof(ArrivalPage, is_awaited) == 64 && offsetof(ArrivalPage, num_begun) == 72 &&
              offsetof(ArrivalPage, begun_at_ns) == 128);

// From the start of the session region.
inline constexpr uint32_t kArrivalOffset = 1024;
static_assert(kArrivalOffset >= sizeof(SessionHeader) && kArrivalOffset % alignof(ArrivalPage) == 0 &&
              kArrivalOffset + sizeof(ArrivalPage) <= kSessionRegionBytes);

}  // namespace tally::shm
