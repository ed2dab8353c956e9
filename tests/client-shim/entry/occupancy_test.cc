#include <gtest/gtest.h>

#include "proto/driver/generated/wire_ops.h"
#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

// Asked once per question, and again when the answer may have changed.
TEST(Occupancy, IsForgottenWhenAnAttributeOfTheKernelChanges) {
  FakeExecutor executor;
  ScriptKernel(&executor);
  executor.On(kOp_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
              [asked = std::make_shared<int>(0)](const FakeRequest&, FakeReply* reply) {
                reply->Append(static_cast<uint64_t>(++*asked));
              });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUfunction function = nullptr;
                         if (GetKernel(&function) != 0) return 1;
                         const auto ask = [&](int block, size_t shared) {
                           int blocks = 0;
                           const CUresult result =
                               SHIM(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, function, block, shared);
                           return result == CUDA_SUCCESS ? blocks : -1;
                         };
                         REQUIRE(ask(128, 0) == 1);
                         REQUIRE(ask(128, 0) == 1);
                         REQUIRE(ask(256, 0) == 2);
                         REQUIRE(ask(128, 1024) == 3);
                         REQUIRE(ask(128, 0) == 1);
                         REQUIRE(SHIM(cuFuncSetAttribute)(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                                          50) == CUDA_SUCCESS);
                         REQUIRE(ask(128, 0) == 4);
                         REQUIRE(ask(256, 0) == 5);
                         REQUIRE(ask(128, 0) == 4);
                         return 0;
                       }),
            0);
}

}  // namespace
}  // namespace tally::client_shim
