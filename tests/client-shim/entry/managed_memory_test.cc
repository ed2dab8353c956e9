#include <gtest/gtest.h>

#include <cstdint>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

// What holds for a part only does not hold for all of it.
TEST(ManagedMemory, AnAttributeIsThatOfTheWholeRange) {
  FakeExecutor executor;
  ScriptStreams(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         constexpr size_t kPage = size_t{2} << 20;
                         CUdeviceptr memory = 0;
                         CUstream stream = nullptr;
                         REQUIRE(SHIM(cuMemAllocManaged)(&memory, 3 * kPage, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
                         CUdeviceptr parts[] = {memory, memory + kPage, memory + 2 * kPage};
                         size_t sizes[] = {kPage, kPage, kPage}, first_of[] = {0, 1};
                         CUmemLocation locations[2]{};
                         locations[0].type = CU_MEM_LOCATION_TYPE_HOST;
                         locations[1].type = CU_MEM_LOCATION_TYPE_DEVICE;
                         REQUIRE(SHIM(cuMemPrefetchBatchAsync)(parts, sizes, 3, locations, first_of, 2, 0, stream) ==
                                 CUDA_SUCCESS);
                         const auto last = [](CUdeviceptr begin, size_t bytes) {
                           int device = -7;
                           const CUresult result = SHIM(cuMemRangeGetAttribute)(
                               &device, sizeof(device), CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, begin, bytes);
                           return result == CUDA_SUCCESS ? device : -8;
                         };
                         REQUIRE(last(parts[0], kPage) == CU_DEVICE_CPU);
                         REQUIRE(last(parts[1], kPage) == 0);
                         REQUIRE(last(parts[1], 2 * kPage) == 0);
                         REQUIRE(last(parts[0], 2 * kPage) == CU_DEVICE_INVALID);
                         REQUIRE(last(parts[0], 3 * kPage) == CU_DEVICE_INVALID);
                         return 0;
                       }),
            0);
}

}  // namespace
}  // namespace tally::client_shim
