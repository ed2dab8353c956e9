#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "proto/driver/generated/wire_ops.h"
#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

TEST(Context, TheOneBelowIsCurrentAgainWhenOneIsDestroyed) {
  FakeExecutor executor;
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         REQUIRE(SHIM(cuInit)(0) == CUDA_SUCCESS);
                         CUcontext first = nullptr, second = nullptr, third = nullptr, current = nullptr;
                         const auto create = SHIM(cuCtxCreate_v2);
                         REQUIRE(create(&first, 0, 0) == CUDA_SUCCESS);
                         REQUIRE(create(&second, 0, 0) == CUDA_SUCCESS);
                         REQUIRE(create(&third, 0, 0) == CUDA_SUCCESS);
                         REQUIRE(first != second && second != third);
                         REQUIRE(SHIM(cuCtxDestroy_v2)(third) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxGetCurrent)(&current) == CUDA_SUCCESS && current == second);
                         REQUIRE(SHIM(cuCtxDestroy_v2)(third) == CUDA_ERROR_INVALID_CONTEXT);
                         REQUIRE(SHIM(cuCtxSetCurrent)(third) == CUDA_ERROR_INVALID_CONTEXT);
                         // Another thread's current context ends under it.
                         CUresult seen = CUDA_SUCCESS;
                         std::thread other([&] {
                           if (SHIM(cuCtxSetCurrent)(second) != CUDA_SUCCESS) return;
                           std::thread([&] { SHIM(cuCtxDestroy_v2)(second); }).join();
                           CUdeviceptr memory = 0;
                           seen = SHIM(cuMemAlloc_v2)(&memory, 16);
                         });
                         other.join();
                         REQUIRE(seen == CUDA_ERROR_CONTEXT_IS_DESTROYED);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_ERROR_CONTEXT_IS_DESTROYED);
                         REQUIRE(SHIM(cuCtxPopCurrent_v2)(&current) == CUDA_SUCCESS && current == second);
                         REQUIRE(SHIM(cuCtxGetCurrent)(&current) == CUDA_SUCCESS && current == first);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxPopCurrent_v2)(&current) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxPopCurrent_v2)(&current) == CUDA_ERROR_INVALID_CONTEXT);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_ERROR_INVALID_CONTEXT);
                         return 0;
                       }),
            0);
}

// Libraries ask before launches: each question would wait for all launches before it.
TEST(Context, ALimitIsAskedForOnceUntilOneIsSet) {
  FakeExecutor executor;
  executor.On(kOp_cuCtxGetLimit, [asked = std::make_shared<int>(0)](const FakeRequest&, FakeReply* reply) {
    reply->Append(static_cast<uint64_t>(++*asked));
  });
  executor.On(kOp_cuCtxSetLimit, [](const FakeRequest&, FakeReply*) {});
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         size_t value = 0;
                         const auto ask = [&](CUlimit limit) {
                           return SHIM(cuCtxGetLimit)(&value, limit) == CUDA_SUCCESS ? value : 0;
                         };
                         REQUIRE(SHIM(cuInit)(0) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxGetLimit)(&value, CU_LIMIT_STACK_SIZE) == CUDA_ERROR_INVALID_CONTEXT);
                         CUcontext first = nullptr, second = nullptr;
                         REQUIRE(SHIM(cuCtxCreate_v2)(&first, 0, 0) == CUDA_SUCCESS);
                         REQUIRE(ask(CU_LIMIT_STACK_SIZE) == 1);
                         REQUIRE(ask(CU_LIMIT_STACK_SIZE) == 1);
                         REQUIRE(ask(CU_LIMIT_MALLOC_HEAP_SIZE) == 2);
                         REQUIRE(ask(CU_LIMIT_STACK_SIZE) == 1);
                         REQUIRE(SHIM(cuCtxGetLimit)(nullptr, CU_LIMIT_STACK_SIZE) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(SHIM(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, 4096) == CUDA_SUCCESS);
                         REQUIRE(ask(CU_LIMIT_STACK_SIZE) == 3);
                         REQUIRE(ask(CU_LIMIT_MALLOC_HEAP_SIZE) == 4);
                         // Each context has its own, and one whose name is used again knows nothing.
                         REQUIRE(SHIM(cuCtxCreate_v2)(&second, 0, 0) == CUDA_SUCCESS);
                         REQUIRE(ask(CU_LIMIT_STACK_SIZE) == 5);
                         REQUIRE(SHIM(cuCtxDestroy_v2)(second) == CUDA_SUCCESS);
                         REQUIRE(ask(CU_LIMIT_STACK_SIZE) == 3);
                         REQUIRE(SHIM(cuCtxCreate_v2)(&second, 0, 0) == CUDA_SUCCESS);
                         REQUIRE(ask(CU_LIMIT_STACK_SIZE) == 6);
                         // Of what is no limit of this version's nothing is kept.
                         const auto unknown = static_cast<CUlimit>(CU_LIMIT_MAX + 3);
                         REQUIRE(ask(unknown) == 7);
                         REQUIRE(ask(unknown) == 8);
                         return 0;
                       }),
            0);
}

// Names are used again: what lived in the context before is not what lives in the next one.
TEST(Context, NothingOfADestroyedOneIsFound) {
  FakeExecutor executor;
  ScriptMemory(&executor);
  ScriptStreams(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         REQUIRE(SHIM(cuInit)(0) == CUDA_SUCCESS);
                         CUcontext context = nullptr, next = nullptr;
                         CUstream stream = nullptr;
                         CUdeviceptr memory = 0;
                         CUevent event = nullptr;
                         REQUIRE(SHIM(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemAlloc_v2)(&memory, 4096) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxCreate_v2)(&next, 0, 0) == CUDA_SUCCESS);
                         REQUIRE(next != context);
                         REQUIRE(SHIM(cuCtxPushCurrent_v2)(context) == CUDA_ERROR_INVALID_CONTEXT);
                         REQUIRE(SHIM(cuStreamSynchronize)(stream) == CUDA_ERROR_INVALID_HANDLE);
                         REQUIRE(SHIM(cuMemsetD8_v2)(memory, 0, 1) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(SHIM(cuMemFree_v2)(memory) == CUDA_ERROR_INVALID_VALUE);  // no capture is left either
                         REQUIRE(SHIM(cuMemAlloc_v2)(&memory, 4096) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuEventCreate)(&event, 0) == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
}

}  // namespace
}  // namespace tally::client_shim
