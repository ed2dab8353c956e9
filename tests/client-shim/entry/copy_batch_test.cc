#include <gtest/gtest.h>

#include <cstdint>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

// Its number is that of the copy, and those behind it are not made.
TEST(CopyBatch, TheFirstCopyThatFailsIsNamed) {
  FakeExecutor executor;
  ScriptMemory(&executor);
  ScriptStreams(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUdeviceptr memory = 0;
                         CUstream stream = nullptr;
                         REQUIRE(SHIM(cuMemAlloc_v2)(&memory, 4096) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
                         CUDA_MEMCPY3D_BATCH_OP copies[3]{};
                         for (CUDA_MEMCPY3D_BATCH_OP& copy : copies) {
                           copy.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
                           copy.extent = {16, 1, 1};
                           copy.src.type = copy.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
                           copy.src.op.ptr.ptr = memory;
                           copy.dst.op.ptr.ptr = memory + 2048;
                         }
                         size_t failed = 0;
                         const auto copy = [&] { return SHIM(cuMemcpy3DBatchAsync)(3, copies, &failed, 0, stream); };
                         REQUIRE(copy() == CUDA_SUCCESS && failed == SIZE_MAX);
                         copies[1].extent.width = 0;
                         REQUIRE(copy() == CUDA_ERROR_INVALID_VALUE && failed == 1);
                         copies[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
                         REQUIRE(copy() == CUDA_ERROR_INVALID_VALUE && failed == 0);
                         return 0;
                       }),
            0);
  EXPECT_EQ(executor.NumRequests(shm::Op::kCopyBox), 3u + 1u);
}

}  // namespace
}  // namespace tally::client_shim
