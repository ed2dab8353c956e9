#include <gtest/gtest.h>

#include <cstring>

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

}  // namespace
}  // namespace tally::client_shim
