#include "client-shim/state/callback_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

// The thread that runs host functions needs a channel of its own: a function that nobody will run holds its stream up
// for good.
TEST(CallbackThread, WithoutAChannelAHostFunctionIsRefused) {
  FakeExecutor executor;
  executor.set_max_channels(2);
  auto token = std::make_shared<std::atomic<uint64_t>>(0);
  executor.On(shm::Op::kLaunchHostFunction, [token](const FakeRequest& request, FakeReply*) {
    *token = request.Read<shm::LaunchHostFunction>().token;
  });
  executor.On(shm::Op::kAwaitCallback, [token](const FakeRequest&, FakeReply* reply) {
    reply->Append(token->exchange(0));  // 0: asked again
    reply->Append(uint64_t{0});
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         static std::atomic<int> ran{0};
                         const auto launch = [] {
                           return SHIM(cuLaunchHostFunc)(
                               nullptr, [](void*) { ++ran; }, nullptr);
                         };
                         std::atomic<bool> has_channel{false}, may_end{false};
                         std::thread other([&] {
                           has_channel = Begin() == 0;
                           while (!may_end) std::this_thread::yield();
                         });
                         while (!has_channel) std::this_thread::yield();
                         const CUresult refused = launch();
                         may_end = true;
                         other.join();  // gives its channel back
                         REQUIRE(refused == CUDA_ERROR_OUT_OF_MEMORY);
                         REQUIRE(launch() == CUDA_SUCCESS);
                         while (ran == 0) std::this_thread::yield();
                         REQUIRE(ran == 1);
                         return 0;
                       }),
            0);
}

TEST(ShimCalls, HostFunctionsRunOnTheCallbackThreadAndAreAcknowledged) {
  FakeExecutor executor;
  // The launch leaves a token; the callback thread's request for work gets it, and the next one reports it done.
  auto token = std::make_shared<std::atomic<uint64_t>>(0);
  auto finished = std::make_shared<std::atomic<uint64_t>>(0);
  executor.On(shm::Op::kLaunchHostFunction, [token](const FakeRequest& request, FakeReply*) {
    *token = request.Read<shm::LaunchHostFunction>().token;
  });
  executor.On(shm::Op::kAwaitCallback, [&executor, token, finished](const FakeRequest& request, FakeReply* reply) {
    const auto done = request.Read<shm::AwaitCallback>().finished_token;
    if (done != 0) {
      *finished = done;
      executor.session_header()->async_error = CUDA_ERROR_INVALID_HANDLE;  // the program may end
      reply->is_withheld = true;                                           // no more work
      return;
    }
    reply->Append(token->load());  // 0 at first: asked again
    reply->Append(uint64_t{0});
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         static std::atomic<int> ran{0};
                         REQUIRE(SHIM(cuLaunchHostFunc)(
                                     nullptr, [](void* user) { ran = *static_cast<int*>(user); }, new int(42)) ==
                                 CUDA_SUCCESS);
                         while (ran == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                         REQUIRE(ran == 42);
                         while (SHIM(cuCtxSynchronize)() == CUDA_SUCCESS)
                           std::this_thread::sleep_for(std::chrono::milliseconds(1));
                         return 0;
                       }),
            0);
  EXPECT_NE(token->load(), 0u);
  EXPECT_EQ(finished->load(), token->load());
}

}  // namespace
}  // namespace tally::client_shim
