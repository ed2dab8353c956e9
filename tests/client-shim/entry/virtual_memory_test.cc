#include <gtest/gtest.h>

#include <cstdint>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

constexpr uint64_t kAddress = FakeExecutor::kFirstHostAddress + (uint64_t{1} << 40);  // free under asan, too
constexpr size_t kPage = size_t{2} << 20;

void ScriptMappings(FakeExecutor* executor, uint32_t unmapping) {
  executor->On(shm::Op::kReserveAddresses, [](const FakeRequest&, FakeReply* reply) { reply->Append(kAddress); });
  executor->On(shm::Op::kMapPhysical, [](const FakeRequest&, FakeReply* reply) { reply->Append(uint64_t{0}); });
  executor->On(shm::Op::kUnmapPhysical,
               [unmapping](const FakeRequest&, FakeReply* reply) { reply->result = unmapping; });
}

// Two pages, mapped one by one.
int MapTwo() {
  REQUIRE(Begin() == 0);
  CUdeviceptr address = 0;
  REQUIRE(SHIM(cuMemAddressReserve)(&address, 2 * kPage, 0, 0, 0) == CUDA_SUCCESS && address == kAddress);
  for (const CUdeviceptr page : {kAddress, kAddress + kPage}) {
    REQUIRE(SHIM(cuMemMap)(page, kPage, 0, 1, 0) == CUDA_SUCCESS);
  }
  return 0;
}
bool IsMapped(CUdeviceptr page) { return SHIM(cuMemsetD8_v2)(page, 0, kPage) == CUDA_SUCCESS; }

// Whether a program sees an error or not: what is mapped stays usable until it is unmapped.
TEST(VirtualMemory, AnUnmapThatFailsUnmapsNothing) {
  FakeExecutor executor;
  ScriptMappings(&executor, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (MapTwo() != 0) return 1;
                         // Across the end of the second page: nothing of it is asked of the executor.
                         REQUIRE(SHIM(cuMemUnmap)(kAddress, kPage + kPage / 2) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(IsMapped(kAddress) && IsMapped(kAddress + kPage));
                         // The executor refuses.
                         REQUIRE(SHIM(cuMemUnmap)(kAddress, 2 * kPage) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(IsMapped(kAddress) && IsMapped(kAddress + kPage));
                         return 0;
                       }),
            0);
  EXPECT_EQ(executor.NumRequests(shm::Op::kUnmapPhysical), 1u);
}

TEST(VirtualMemory, WhatIsUnmappedIsNotFound) {
  FakeExecutor executor;
  ScriptMappings(&executor, CUDA_SUCCESS);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (MapTwo() != 0) return 1;
                         REQUIRE(SHIM(cuMemUnmap)(kAddress, kPage) == CUDA_SUCCESS);
                         REQUIRE(!IsMapped(kAddress) && IsMapped(kAddress + kPage));
                         return 0;
                       }),
            0);
}

}  // namespace
}  // namespace tally::client_shim
