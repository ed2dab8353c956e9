#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

// The program's own memory on both sides: the copy is made here, when the stream has come so far.
TEST(CopyLinear, HostToHostComesAfterTheWorkOfItsStream) {
  FakeExecutor executor;
  ScriptStreams(&executor);
  // The stream is held up for good: what comes behind must not happen.
  auto waits = std::make_shared<int>(0);
  executor.On(shm::Op::kSynchronizeStream, [waits](const FakeRequest& request, FakeReply* reply) {
    EXPECT_EQ(request.Read<uint64_t>(), shm::MakeHandle(shm::HandleKind::kStream, 0, true, 1));
    reply->result = ++*waits == 1 ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUstream stream = nullptr;
                         REQUIRE(SHIM(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
                         char from[] = "new", to[] = "old";
                         const auto copy = [&] {
                           return SHIM(cuMemcpyAsync)(reinterpret_cast<CUdeviceptr>(to),
                                                      reinterpret_cast<CUdeviceptr>(from), sizeof(to), stream);
                         };
                         REQUIRE(copy() == CUDA_ERROR_LAUNCH_FAILED);
                         REQUIRE(std::strcmp(to, "old") == 0);
                         REQUIRE(copy() == CUDA_SUCCESS);
                         REQUIRE(std::strcmp(to, "new") == 0);
                         return 0;
                       }),
            0);
  EXPECT_EQ(*waits, 2);
}

TEST(ShimCalls, CopiesTravelInlineAndThroughTheArena) {
  FakeExecutor executor;
  ScriptMemory(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUdeviceptr device = 0;
                         constexpr size_t kBytes = 10 << 20;
                         REQUIRE(SHIM(cuMemAlloc_v2)(&device, kBytes) == CUDA_SUCCESS);
                         std::vector<char> host(kBytes, 'x');
                         REQUIRE(SHIM(cuMemcpyHtoD_v2)(device, host.data(), 100) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemcpyHtoD_v2)(device, host.data(), kBytes) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemcpyDtoH_v2)(host.data(), device, kBytes) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemcpyHtoD_v2)(device + 1, host.data(), kBytes) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(SHIM(cuMemcpyHtoD_v2)(0x10, host.data(), 4) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(SHIM(cuMemFree_v2)(device) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemFree_v2)(device) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(SHIM(cuMemcpyHtoD_v2)(device, host.data(), 4) == CUDA_ERROR_INVALID_VALUE);
                         return 0;
                       }),
            0);
  size_t inline_bytes = 0, up_bytes = 0, down_bytes = 0;
  for (const FakeRequest& request : executor.requests()) {
    if (request.op != static_cast<uint16_t>(shm::Op::kCopy)) continue;
    const auto copy = request.Read<shm::Copy>();
    if (copy.source_place == static_cast<uint32_t>(shm::Place::kInline)) {
      inline_bytes += copy.size_bytes;
      EXPECT_EQ(request.payload.size(), sizeof(copy) + copy.size_bytes);
      EXPECT_EQ(request.Read<char>(sizeof(copy)), 'x');
    } else if (copy.source_place == static_cast<uint32_t>(shm::Place::kArena)) {
      up_bytes += copy.size_bytes;
    } else {
      down_bytes += copy.size_bytes;
    }
  }
  EXPECT_EQ(inline_bytes, 100u);
  EXPECT_EQ(up_bytes, size_t{10} << 20);
  EXPECT_EQ(down_bytes, size_t{10} << 20);
}

}  // namespace
}  // namespace tally::client_shim
