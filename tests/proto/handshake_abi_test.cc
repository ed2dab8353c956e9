#include "proto/shm/handshake_abi.h"

#include <gtest/gtest.h>

#include <cstring>

#include "proto/control/graph_figures.h"
#include "proto/control/window_mode.h"
#include "tests/proto/twin.h"

namespace tally::shm {
namespace {

EXPECT_PLAIN(HelloRequest, 168);
EXPECT_FIELD(HelloRequest, magic, 0, 4);
EXPECT_FIELD(HelloRequest, protocol_version, 4, 4);
EXPECT_FIELD(HelloRequest, api_table_hash, 8, 8);
EXPECT_FIELD(HelloRequest, priority_class, 16, 2);
EXPECT_FIELD(HelloRequest, window, 18, 1);
EXPECT_FIELD(HelloRequest, graphs, 19, 1);
EXPECT_FIELD(HelloRequest, keeps_kernels, 23, 1);
EXPECT_FIELD(HelloRequest, tenant_name, 24, 64);
EXPECT_FIELD(HelloRequest, domain_name, 88, 32);
EXPECT_FIELD(HelloRequest, slo, 120, 24);
EXPECT_FIELD(HelloRequest, turnaround_ns, 144, 8);
EXPECT_FIELD(HelloRequest, device_memory_bytes, 152, 8);
EXPECT_FIELD(HelloRequest, share_permille, 160, 4);
EXPECT_FIELD(HelloRequest, only_starts, 164, 1);
EXPECT_FIELD(HelloRequest, own_domain, 165, 1);
EXPECT_FIELD(HelloRequest, rank, 166, 2);

EXPECT_PLAIN(HelloReply, 544);
EXPECT_FIELD(HelloReply, magic, 0, 4);
EXPECT_FIELD(HelloReply, protocol_version, 4, 4);
EXPECT_FIELD(HelloReply, api_table_hash, 8, 8);
EXPECT_FIELD(HelloReply, session_id, 16, 8);
EXPECT_FIELD(HelloReply, status_code, 24, 4);
EXPECT_FIELD(HelloReply, error, 32, 512);

EXPECT_PLAIN(SessionRequest, 32);
EXPECT_FIELD(SessionRequest, kind, 0, 4);
EXPECT_FIELD(SessionRequest, device, 4, 4);
EXPECT_FIELD(SessionRequest, value, 8, 24);
EXPECT_PLAIN(SessionReply, 32);
EXPECT_FIELD(SessionReply, cuda_result, 4, 4);
EXPECT_FIELD(SessionReply, value, 8, 24);

// A deliberate copy of the version and of what a peer of another version reads
// first: changing either breaks this test, so that a bump is a decision.
TEST(HandshakeAbi, VersionIsTheOneThisPageDescribes) {
  EXPECT_EQ(kProtocolVersion, 3u);
  EXPECT_EQ(kHelloMagic, 0x594C4154u);
  EXPECT_EQ(static_cast<uint32_t>(PriorityClass::kHighPriority), 1u);
  EXPECT_EQ(static_cast<uint32_t>(PriorityClass::kBestEffort), 2u);
}

// A client that was built before there was a window wrote its class as four bytes.
TEST(HandshakeAbi, AHelloWithoutAWindowSaysOff) {
  const uint32_t priority_class = static_cast<uint32_t>(PriorityClass::kBestEffort);
  HelloRequest hello{};
  std::memcpy(reinterpret_cast<std::byte*>(&hello) + 16, &priority_class, sizeof(priority_class));
  EXPECT_EQ(static_cast<PriorityClass>(hello.priority_class), PriorityClass::kBestEffort);
  EXPECT_EQ(static_cast<control::WindowMode>(hello.window), control::WindowMode::kOff);
}

// Likewise for graphs: only_starts was four bytes.
TEST(HandshakeAbi, AHelloWithoutAModeOfGraphsSaysPartitions) {
  const uint32_t only_starts = 1;
  HelloRequest hello{};
  std::memcpy(reinterpret_cast<std::byte*>(&hello) + 164, &only_starts, sizeof(only_starts));
  EXPECT_EQ(hello.only_starts, 1u);
  EXPECT_EQ(static_cast<control::GraphMode>(hello.graphs), control::GraphMode::kPartitions);
}

}  // namespace
}  // namespace tally::shm
