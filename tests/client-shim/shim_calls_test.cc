// The built libcuda.so.1 against a scripted executor, each test in a process of its own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "proto/driver/generated/driver_symbols.h"
#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

TEST(ShimCalls, NoDaemonIsOneClearError) {
  EXPECT_EQ(RunInChild("/nonexistent/tally.sock",
                       [] {
                         REQUIRE(SHIM(cuInit)(0) == CUDA_ERROR_SYSTEM_NOT_READY);
                         int count = 0;
                         REQUIRE(SHIM(cuDeviceGetCount)(&count) == CUDA_ERROR_NOT_INITIALIZED);
                         int version = 0;
                         REQUIRE(SHIM(cuDriverGetVersion)(&version) == CUDA_SUCCESS && version == CUDA_VERSION);
                         return 0;
                       }),
            0);
}

TEST(ShimCalls, OtherProtocolVersionIsRefused) {
  FakeExecutor executor;
  executor.set_protocol_version(shm::kProtocolVersion + 1);
  EXPECT_EQ(
      RunInChild(executor.socket_path(), [] { return SHIM(cuInit)(0) == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH ? 0 : 1; }),
      0);
}

// tallyd may give a session to an executor that has just lost its context, before it knows.
TEST(ShimCalls, ExecutorThatIsGoneBeforeItTookTheSessionIsAskedForAgain) {
  FakeExecutor executor;
  executor.LoseSessions(2);
  EXPECT_EQ(RunInChild(executor.socket_path(), [] { return SHIM(cuInit)(0) == CUDA_SUCCESS ? 0 : 1; }), 0);
  EXPECT_EQ(executor.num_hellos(), 3);
}

TEST(ShimCalls, ExecutorsThatAreAlwaysGoneAreAnErrorInTheEnd) {
  FakeExecutor executor;
  executor.LoseSessions(1000);
  EXPECT_EQ(RunInChild(executor.socket_path(), [] { return SHIM(cuInit)(0) == CUDA_ERROR_DEVICE_UNAVAILABLE ? 0 : 1; }),
            0);
  EXPECT_EQ(executor.num_hellos(), 5);
}

TEST(ShimCalls, DevicesAreTheVisibleOnes) {
  FakeExecutor executor;
  executor.set_devices({FakeExecutor::MakeDevice(0), FakeExecutor::MakeDevice(1)});
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
                         REQUIRE(SHIM(cuInit)(0) == CUDA_SUCCESS);
                         int count = 0;
                         REQUIRE(SHIM(cuDeviceGetCount)(&count) == CUDA_SUCCESS && count == 1);
                         char name[64];
                         REQUIRE(SHIM(cuDeviceGetName)(name, sizeof(name), 0) == CUDA_SUCCESS);
                         REQUIRE(std::strcmp(name, "Fake 1") == 0);
                         REQUIRE(SHIM(cuDeviceGetName)(name, sizeof(name), 1) == CUDA_ERROR_INVALID_DEVICE);
                         return 0;
                       }),
            0);
}

TEST(ShimCalls, LaunchCarriesPackedParametersAndNoReplyIsAwaited) {
  FakeExecutor executor;
  ScriptKernel(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUfunction function = nullptr;
                         if (GetKernel(&function) != 0) return 1;
                         int number = 0x11223344;
                         void* pointer = reinterpret_cast<void*>(0x123456789ab);
                         void* parameters[] = {&number, &pointer};
                         REQUIRE(SHIM(cuLaunchKernel)(function, 3, 2, 1, 64, 2, 1, 128, nullptr, parameters, nullptr) ==
                                 CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
  bool found = false;
  for (const FakeRequest& request : executor.requests()) {
    if (request.op != static_cast<uint16_t>(shm::Op::kLaunch)) continue;
    found = true;
    const auto launch = request.Read<shm::Launch>();
    EXPECT_EQ(request.flags, 0);
    EXPECT_EQ(request.context, 0u);
    EXPECT_EQ(launch.function, kFunctionHandle);
    EXPECT_EQ(launch.stream, shm::kLegacyStream);
    EXPECT_EQ(launch.grid[0], 3u);
    EXPECT_EQ(launch.block[1], 2u);
    EXPECT_EQ(launch.shared_bytes, 128u);
    ASSERT_EQ(launch.parameter_bytes, 16u);
    EXPECT_EQ(request.Read<uint32_t>(sizeof(launch)), 0x11223344u);
    EXPECT_EQ(request.Read<uint32_t>(sizeof(launch) + 4), 0u);  // the hole is not what the ring held before
    EXPECT_EQ(request.Read<uint64_t>(sizeof(launch) + 8), 0x123456789abu);
  }
  EXPECT_TRUE(found);
}

TEST(ShimCalls, LaunchErrorsAreFoundAtOnce) {
  FakeExecutor executor;
  ScriptKernel(&executor);
  EXPECT_EQ(
      RunInChild(
          executor.socket_path(),
          [] {
            if (Begin() != 0) return 1;
            CUfunction function = nullptr;
            if (GetKernel(&function) != 0) return 1;
            int number = 0;
            void* pointer = nullptr;
            void* parameters[] = {&number, &pointer};
            const auto launch = SHIM(cuLaunchKernel);
            REQUIRE(launch(function, 0, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_ERROR_INVALID_VALUE);
            REQUIRE(launch(function, 1, 1, 1, 2048, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_ERROR_INVALID_VALUE);
            REQUIRE(launch(function, 1, 1, 1, 1, 1, 1, 1 << 20, nullptr, parameters, nullptr) ==
                    CUDA_ERROR_INVALID_VALUE);
            REQUIRE(launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
            REQUIRE(launch(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_ERROR_INVALID_HANDLE);
            REQUIRE(launch(function, 1, 1, 1, 1, 1, 1, 0, reinterpret_cast<CUstream>(0x1234), parameters, nullptr) ==
                    CUDA_ERROR_INVALID_HANDLE);
            return 0;
          }),
      0);
}

TEST(ShimCalls, PerThreadTwinMeansThePerThreadStream) {
  FakeExecutor executor;
  ScriptKernel(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUfunction function = nullptr;
                         if (GetKernel(&function) != 0) return 1;
                         int number = 0;
                         void* pointer = nullptr;
                         void* parameters[] = {&number, &pointer};
                         const auto twin =
                             ShimFunction("cuLaunchKernel_ptsz", static_cast<decltype(&::cuLaunchKernel)>(nullptr));
                         REQUIRE(twin(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
  for (const FakeRequest& request : executor.requests()) {
    if (request.op == static_cast<uint16_t>(shm::Op::kLaunch)) {
      EXPECT_EQ(request.Read<shm::Launch>().stream, shm::kPerThreadStream);
    }
  }
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

TEST(ShimCalls, PinnedMemoryIsSharedAndKnown) {
  FakeExecutor executor;
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         void* pinned = nullptr;
                         REQUIRE(SHIM(cuMemHostAlloc)(&pinned, 1000, 0) == CUDA_SUCCESS);
                         std::memset(pinned, 1, 1000);
                         CUdeviceptr device = 0;
                         REQUIRE(SHIM(cuMemHostGetDevicePointer_v2)(&device, pinned, 0) == CUDA_SUCCESS);
                         REQUIRE(device == reinterpret_cast<CUdeviceptr>(pinned));
                         unsigned type = 0;
                         REQUIRE(SHIM(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 5) ==
                                 CUDA_SUCCESS);
                         REQUIRE(type == CU_MEMORYTYPE_HOST);
                         REQUIRE(SHIM(cuMemFreeHost)(pinned) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemFreeHost)(pinned) == CUDA_ERROR_INVALID_VALUE);
                         return 0;
                       }),
            0);
}

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
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
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

TEST(ShimCalls, ThreadsTakeTicketsInTheOrderOfTheirCallsAndShareEndedLanes) {
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
  EXPECT_LE(executor.num_lanes(), 2u);
  // Every join orders the calls: thread, main, thread, main, ...
  std::vector<uint32_t> lanes;
  uint64_t last = 0;
  for (const FakeRequest& request : executor.requests()) {
    if (last != 0) {
      EXPECT_EQ(request.ticket, last + 1);
    }
    last = request.ticket;
    if (request.op == static_cast<uint16_t>(shm::Op::kCreateEvent)) lanes.push_back(request.lane);
  }
  ASSERT_EQ(lanes.size(), 600u);
  for (size_t i = 1; i < lanes.size(); ++i) EXPECT_NE(lanes[i], lanes[i - 1]) << i;
}

TEST(ShimCalls, ForkedChildIsUninitialisedAndStaysSo) {
  FakeExecutor executor;
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         const pid_t child = ::fork();
                         if (child == 0) {
                           int count = 0;
                           if (SHIM(cuDeviceGetCount)(&count) != CUDA_ERROR_NOT_INITIALIZED) ::_exit(1);
                           if (SHIM(cuCtxSynchronize)() != CUDA_ERROR_NOT_INITIALIZED) ::_exit(2);
                           if (SHIM(cuInit)(0) != CUDA_ERROR_NOT_INITIALIZED) ::_exit(3);
                           if (SHIM(cuCtxSynchronize)() != CUDA_ERROR_NOT_INITIALIZED) ::_exit(4);
                           ::_exit(0);
                         }
                         int status = 0;
                         ::waitpid(child, &status, 0);
                         REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);  // the parent's session is untouched
                         return 0;
                       }),
            0);
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

TEST(ShimCalls, HostFunctionsRunOnTheCallbackThreadAndAreAcknowledged) {
  FakeExecutor executor;
  // The launch leaves a token; the callback thread's request for work gets it, and the next one reports it done.
  auto token = std::make_shared<std::atomic<uint64_t>>(0);
  auto finished = std::make_shared<std::atomic<uint64_t>>(0);
  executor.On(shm::Op::kLaunchHostFunction, [token](const FakeRequest& request, FakeReply*) {
    *token = request.Read<shm::LaunchHostFunction>().token;
  });
  executor.On(shm::Op::kAwaitCallback, [token, finished](const FakeRequest& request, FakeReply* reply) {
    const auto done = request.Read<shm::AwaitCallback>().finished_token;
    if (done != 0) {
      *finished = done;
      reply->is_withheld = true;  // no more work
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
                         std::this_thread::sleep_for(std::chrono::milliseconds(200));
                         return 0;
                       }),
            0);
  EXPECT_NE(token->load(), 0u);
  EXPECT_EQ(finished->load(), token->load());
}

TEST(ShimCalls, UnsafeCallSpoilsAGlobalCapture) {
  FakeExecutor executor;
  ScriptMemory(&executor);
  executor.On(shm::Op::kCreateStream, [](const FakeRequest&, FakeReply* reply) {
    reply->Append(shm::MakeHandle(shm::HandleKind::kStream, 0, true, 1));
  });
  executor.On(shm::Op::kEndCapture, [](const FakeRequest&, FakeReply* reply) {
    reply->Append(shm::MakeHandle(shm::HandleKind::kGraph, 0, true, 1));
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUstream stream = nullptr;
                         CUdeviceptr memory = 0;
                         CUgraph graph = nullptr;
                         REQUIRE(SHIM(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemAlloc_v2)(&memory, 16) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                         REQUIRE(SHIM(cuStreamEndCapture)(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
                         REQUIRE(graph == nullptr);
                         REQUIRE(SHIM(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemAlloc_v2)(&memory, 16) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS && graph != nullptr);
                         return 0;
                       }),
            0);
}

// One line per function and process, on stderr; the executor is told of every call made after cuInit.
TEST(ShimCalls, RefusalsAreLoggedOnceAndReported) {
  FakeExecutor executor;
  int errors[2], output[2];
  ASSERT_EQ(::pipe(errors), 0);
  ASSERT_EQ(::pipe(output), 0);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [&] {
                         ::dup2(errors[1], STDERR_FILENO);
                         ::dup2(output[1], STDOUT_FILENO);
                         CUmemGenericAllocationHandle handle = 0;
                         CUcontext context = nullptr;
                         CUexecAffinityParam affinity{};
                         const auto create = SHIM(cuMulticastCreate);
                         REQUIRE(create(&handle, nullptr) == CUDA_ERROR_NOT_SUPPORTED);  // before cuInit too
                         if (Begin() != 0) return 1;
                         for (int i = 0; i < 3; ++i) {
                           REQUIRE(create(&handle, nullptr) == CUDA_ERROR_NOT_SUPPORTED);
                           REQUIRE(SHIM(cuLaunch)(nullptr) == CUDA_ERROR_NOT_SUPPORTED);
                         }
                         for (int i = 0; i < 2; ++i) {  // one use of a function that is served
                           REQUIRE(SHIM(cuCtxCreate_v3)(&context, &affinity, 1, 0, 0) == CUDA_ERROR_NOT_SUPPORTED);
                         }
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         std::fflush(stdout);
                         return 0;
                       }),
            0);
  ::close(errors[1]);
  ::close(output[1]);
  char text[4096] = {};
  size_t size = 0;
  for (ssize_t more = 1; more > 0 && size < sizeof(text) - 1; size += static_cast<size_t>(std::max<ssize_t>(more, 0)))
    more = ::read(errors[0], text + size, sizeof(text) - 1 - size);
  EXPECT_EQ(::read(output[0], text + size, 1), 0) << "something on stdout";
  const std::string lines(text);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3) << lines;
  for (const char* name : {"cuMulticastCreate", "cuLaunch ", "cuCtxCreate_v3"}) {
    EXPECT_NE(lines.find(name), std::string::npos) << lines;
  }
  ::close(errors[0]);
  ::close(output[0]);
  std::map<std::string, int> noted;
  for (const FakeRequest& request : executor.requests()) {
    if (request.op == static_cast<uint16_t>(shm::Op::kNoteRefusal)) {
      ++noted[kDriverSymbols[request.Read<shm::NoteRefusal>().symbol_index].name];
    }
  }
  EXPECT_EQ(noted, (std::map<std::string, int>{{"cuMulticastCreate", 3}, {"cuLaunch", 3}, {"cuCtxCreate_v3", 2}}));
}

// Two devices and a reordering: the runtime's handshake covers the devices in the order the program sees them.
TEST(ShimCalls, StaticRuntimeAcceptsTheDriver) {
  FakeExecutor executor;
  executor.set_devices({FakeExecutor::MakeDevice(0), FakeExecutor::MakeDevice(1)});
  ScriptMemory(&executor);
  for (const char* visible : {"0,1", "1,0", "1"}) {
    EXPECT_EQ(RunInChild(executor.socket_path(),
                         [&] {
                           ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
                           ::setenv("LD_PRELOAD", TALLY_SHIM_PATH, 1);
                           ::dup2(STDERR_FILENO, STDOUT_FILENO);
                           ::execl(TALLY_RUNTIME_PROBE, TALLY_RUNTIME_PROBE, static_cast<char*>(nullptr));
                           return 1;
                         }),
              0)
        << visible;
  }
}

TEST(ShimCalls, KernelsOfALibraryAreListedToTheLast) {
  constexpr uint32_t kKernels = 7, kPerReply = 3;
  constexpr uint64_t kLibrary = shm::MakeHandle(shm::HandleKind::kLibrary, 0, true, 1);
  const auto handle_of = [](uint32_t i) { return shm::MakeHandle(shm::HandleKind::kKernel, 0, true, i + 1); };
  FakeExecutor executor;
  executor.On(shm::Op::kLoadLibrary, [](const FakeRequest&, FakeReply* reply) {
    reply->Append(shm::LoadedImage{kLibrary, 0, 0});
  });
  executor.On(shm::Op::kListKernels, [&](const FakeRequest& request, FakeReply* reply) {
    const uint32_t first = request.Read<shm::GetByName>().detail;
    const uint32_t count = std::min(kPerReply, kKernels - first);
    reply->Append(count);
    reply->Append(kKernels - first - count);
    for (uint32_t i = first; i < first + count; ++i) {
      reply->Append(handle_of(i));
      reply->Append(uint32_t{8});
      reply->Append(uint32_t{0});
      reply->Append(uint64_t{0x30306c656e72656b} + (uint64_t{i} << 56));  // "kernel00", "kernel01", ...
    }
  });
  executor.On(shm::Op::kGetKernel, [&](const FakeRequest& request, FakeReply* reply) {
    shm::KernelDescription description{};
    description.handle = handle_of(static_cast<uint32_t>(request.payload.back()) - '0');
    reply->Append(description);
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [&] {
                         if (const int failed = Begin(); failed != 0) return failed;
                         CUlibrary library = nullptr;
                         const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
                         REQUIRE(SHIM(cuLibraryLoadData)(&library, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0) ==
                                 CUDA_SUCCESS);
                         unsigned int count = 0;
                         REQUIRE(SHIM(cuLibraryGetKernelCount)(&count, library) == CUDA_SUCCESS && count == kKernels);
                         std::vector<CUkernel> kernels(kKernels);
                         REQUIRE(SHIM(cuLibraryEnumerateKernels)(kernels.data(), kKernels, library) == CUDA_SUCCESS);
                         for (uint32_t i = 0; i < kKernels; ++i) {
                           const char* name = nullptr;
                           REQUIRE(reinterpret_cast<uint64_t>(kernels[i]) == handle_of(i));
                           REQUIRE(SHIM(cuKernelGetName)(&name, kernels[i]) == CUDA_SUCCESS);
                           REQUIRE(name == "kernel0" + std::to_string(i));
                         }
                         return 0;
                       }),
            0);
}

}  // namespace
}  // namespace tally::client_shim
