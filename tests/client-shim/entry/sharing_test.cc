#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <memory>

#include "proto/shm/records_sharing_abi.h"
#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

bool IsReserved(uint64_t address) { return ::msync(reinterpret_cast<void*>(address), 4096, MS_ASYNC) == 0; }

// Natively each open counts, and gives the same address; it is closed once it has been closed as often. Then the
// program may have something else there.
TEST(Sharing, MemoryMayBeOpenedSeveralTimes) {
  constexpr uint64_t kAddress = FakeExecutor::kFirstHostAddress + (uint64_t{1} << 40);  // free under asan, too
  FakeExecutor executor;
  auto num_opens = std::make_shared<uint32_t>(0);
  executor.On(shm::Op::kOpenShared, [num_opens](const FakeRequest&, FakeReply* reply) {
    reply->Append(shm::OpenedShared{kAddress, 1 << 21, 0, ++*num_opens});
  });
  executor.On(shm::Op::kCloseShared,
              [num_opens](const FakeRequest&, FakeReply* reply) { reply->Append(uint64_t{--*num_opens}); });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         shm::SharedName name{};
                         name.magic = shm::kSharedMagic;
                         name.kind = static_cast<uint32_t>(shm::SharedKind::kAllocation);
                         CUipcMemHandle handle{};
                         static_assert(sizeof(handle) == sizeof(name));
                         std::memcpy(&handle, &name, sizeof(name));
                         for (int i = 0; i < 3; ++i) {
                           CUdeviceptr address = 0;
                           REQUIRE(SHIM(cuIpcOpenMemHandle_v2)(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
                                   CUDA_SUCCESS);
                           REQUIRE(address == kAddress);
                         }
                         for (int i = 0; i < 3; ++i) {
                           REQUIRE(IsReserved(kAddress));
                           REQUIRE(SHIM(cuIpcCloseMemHandle)(kAddress) == CUDA_SUCCESS);
                         }
                         REQUIRE(!IsReserved(kAddress));
                         REQUIRE(SHIM(cuIpcCloseMemHandle)(kAddress) == CUDA_ERROR_INVALID_VALUE);
                         return 0;
                       }),
            0);
  EXPECT_EQ(*num_opens, 0u);
}

}  // namespace
}  // namespace tally::client_shim
