#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

TEST(ShimCalls, ExecutorsDeathMidWaitIsAStickyErrorNotAHang) {
  FakeExecutor executor;
  executor.On(shm::Op::kSynchronizeContext, [&](const FakeRequest&, FakeReply* reply) {
    reply->is_withheld = true;
    executor.Die();
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_ERROR_DEVICE_UNAVAILABLE);
                         CUstream stream = nullptr;
                         REQUIRE(SHIM(cuStreamCreate)(&stream, 0) == CUDA_ERROR_DEVICE_UNAVAILABLE);
                         CUevent event = nullptr;
                         REQUIRE(SHIM(cuEventCreate)(&event, 0) == CUDA_ERROR_DEVICE_UNAVAILABLE);
                         return 0;
                       }),
            0);
}

// It was killed after it had written the reply, before it rang the doorbell: the work is done, and says so.
TEST(ShimCalls, ReplyThatWasWrittenJustBeforeTheExecutorsDeathCounts) {
  FakeExecutor executor;
  constexpr uint64_t kStream = shm::MakeHandle(shm::HandleKind::kStream, 0, true, 1);
  executor.On(shm::Op::kCreateStream, [&](const FakeRequest&, FakeReply* reply) {
    executor.Die();
    reply->Append(kStream);
    reply->is_unrung = true;
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUstream stream = nullptr;
                         REQUIRE(SHIM(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
                         REQUIRE(reinterpret_cast<uint64_t>(stream) == kStream);
                         REQUIRE(SHIM(cuStreamCreate)(&stream, 0) == CUDA_ERROR_DEVICE_UNAVAILABLE);
                         return 0;
                       }),
            0);
}

TEST(ShimCalls, FullRingWaitsForTheExecutorAndNoticesItsDeath) {
  FakeExecutor executor;
  executor.On(shm::Op::kOpenContext, [&](const FakeRequest&, FakeReply*) { executor.Pause(true); });
  std::thread killer = StartSettled([&] {
    while (!executor.IsRoomAwaited()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // as a rule it sleeps by then
    executor.Die();
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUevent event = nullptr;
                         for (int i = 0; i < 1 << 20; ++i) {
                           const CUresult result = SHIM(cuEventCreate)(&event, 0);
                           if (result == CUDA_ERROR_DEVICE_UNAVAILABLE) return 0;
                           REQUIRE(result == CUDA_SUCCESS);
                         }
                         return 2;
                       }),
            0);
  killer.join();
}

TEST(ShimCalls, AsynchronousErrorComesWithTheNextSynchronisation) {
  FakeExecutor executor;
  executor.On(shm::Op::kCreateEvent, [&](const FakeRequest&, FakeReply*) {
    executor.session_header()->async_error = CUDA_ERROR_INVALID_HANDLE;
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUevent event = nullptr;
                         REQUIRE(SHIM(cuEventCreate)(&event, 0) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_ERROR_INVALID_HANDLE);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
}

TEST(ShimCalls, ThreadsTakeSequenceNumbersInTheOrderOfTheirCallsAndShareEndedChannels) {
  FakeExecutor executor;
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         for (int i = 0; i < 300; ++i) {
                           std::thread thread([] {
                             CUcontext context = nullptr;
                             SHIM(cuDevicePrimaryCtxRetain)(&context, 0);
                             SHIM(cuCtxSetCurrent)(context);
                             CUevent event = nullptr;
                             SHIM(cuEventCreate)(&event, 0);
                           });
                           thread.join();
                           CUevent event = nullptr;
                           REQUIRE(SHIM(cuEventCreate)(&event, 0) == CUDA_SUCCESS);
                         }
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
  EXPECT_LE(executor.num_channels(), 2u);
  // Every join orders the calls: thread, main, thread, main, ...
  std::vector<uint32_t> channels;
  uint64_t last = 0;
  for (const FakeRequest& request : executor.requests()) {
    if (last != 0) {
      EXPECT_EQ(request.sequence_number, last + 1);
    }
    last = request.sequence_number;
    if (request.op == static_cast<uint16_t>(shm::Op::kCreateEvent)) channels.push_back(request.channel);
  }
  ASSERT_EQ(channels.size(), 600u);
  for (size_t i = 1; i < channels.size(); ++i) EXPECT_NE(channels[i], channels[i - 1]) << i;
}

TEST(ShimCalls, DevicePrintfIsFetchedAtTheSynchronisation) {
  FakeExecutor executor;
  executor.On(shm::Op::kSynchronizeContext,
              [](const FakeRequest&, FakeReply* reply) { reply->flags = shm::kOutputPending; });
  auto calls = std::make_shared<int>(0);
  executor.On(shm::Op::kFetchOutput, [calls](const FakeRequest&, FakeReply* reply) {
    if ((*calls)++ != 0) return;
    for (const char c : std::string("hello\n")) reply->Append(c);
  });
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [&] {
                         ::dup2(pipe_fds[1], STDOUT_FILENO);
                         if (Begin() != 0) return 1;
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         std::fflush(stdout);
                         return 0;
                       }),
            0);
  char text[16] = {};
  EXPECT_EQ(::read(pipe_fds[0], text, sizeof(text) - 1), 6);
  EXPECT_STREQ(text, "hello\n");
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
}

}  // namespace
}  // namespace tally::client_shim
