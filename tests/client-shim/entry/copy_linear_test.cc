#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <thread>
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

constexpr uint16_t kPosted = 0, kWaits = shm::kWantReply, kEarly = shm::kReturnsEarly;

// The flags of the copies that the executor got.
std::vector<uint16_t> FlagsOfCopies(FakeExecutor& executor) {
  std::vector<uint16_t> flags;
  for (const FakeRequest& request : executor.requests()) {
    if (request.op == static_cast<uint16_t>(shm::Op::kCopy)) flags.push_back(request.flags);
  }
  return flags;
}

// It is a wait for what came before: it may return early only where that is known to be over, and then with the word
// that the program counts on the copy.
TEST(CopyLinear, ABlockingCopyReturnsEarlyOnlyWhereNothingWasUnderWay) {
  FakeExecutor executor;
  ScriptMemory(&executor);
  ScriptStreams(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUdeviceptr device = 0;
                         constexpr size_t kBytes = (2 << 20) + 100;
                         REQUIRE(SHIM(cuMemAlloc_v2)(&device, kBytes) == CUDA_SUCCESS);
                         std::vector<char> host(kBytes, 'x');
                         const auto blocking = [&](size_t size) {
                           return SHIM(cuMemcpyHtoD_v2)(device, host.data(), size) == CUDA_SUCCESS;
                         };
                         REQUIRE(blocking(100));                      // who knows what came before: waits
                         REQUIRE(blocking(100));                      // early
                         REQUIRE(blocking(kBytes) && blocking(100));  // early, in three pieces, and early
                         REQUIRE(SHIM(cuMemsetD8Async)(device, 1, 100, nullptr) == CUDA_SUCCESS);
                         REQUIRE(blocking(kBytes));  // waits, with the last piece
                         REQUIRE(SHIM(cuMemcpyHtoDAsync_v2)(device, host.data(), 100, nullptr) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemcpyDtoH_v2)(host.data(), device, 100) == CUDA_SUCCESS);
                         REQUIRE(blocking(100));  // early
                         REQUIRE(SHIM(cuMemsetD8Async)(device, 1, 100, nullptr) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         REQUIRE(blocking(100));  // early
                         // Of the stream of this thread nothing is known.
                         const auto own = SHIM_VARIANT(cuMemcpyHtoD_v2, "_ptds");
                         REQUIRE(own(device, host.data(), 100) == CUDA_SUCCESS);
                         // One stream that is idle says nothing of the others.
                         REQUIRE(SHIM(cuMemsetD8Async)(device, 1, 100, nullptr) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuStreamSynchronize)(nullptr) == CUDA_SUCCESS);
                         REQUIRE(blocking(100));  // waits
                         std::thread other([&] {
                           SHIM(cuDevicePrimaryCtxRetain)(nullptr, 0);
                           CUcontext context = nullptr;
                           SHIM(cuDevicePrimaryCtxRetain)(&context, 0);
                           SHIM(cuCtxSetCurrent)(context);
                           SHIM(cuMemsetD8Async)(device, 1, 100, nullptr);
                         });
                         other.join();
                         REQUIRE(blocking(100));  // waits: another thread has put something there
                         return 0;
                       }),
            0);
  EXPECT_EQ(FlagsOfCopies(executor),
            (std::vector<uint16_t>{kWaits, kEarly, kPosted, kPosted, kEarly, kEarly, kPosted, kPosted, kWaits, kPosted,
                                   kWaits, kEarly, kEarly, kWaits, kWaits, kWaits}));
}

TEST(CopyLinear, ABlockingBoxWaits) {
  FakeExecutor executor;
  ScriptMemory(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUdeviceptr device = 0;
                         REQUIRE(SHIM(cuMemAlloc_v2)(&device, 4096) == CUDA_SUCCESS);
                         const std::vector<char> host(100, 'x');
                         CUDA_MEMCPY2D box{};
                         box.srcMemoryType = CU_MEMORYTYPE_HOST;
                         box.srcHost = host.data();
                         box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
                         box.dstDevice = device;
                         box.WidthInBytes = box.Height = 10;
                         REQUIRE(SHIM(cuMemcpy2DAsync_v2)(&box, nullptr) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemcpy2D_v2)(&box) == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
  const auto requests = executor.requests();
  ASSERT_GE(requests.size(), 3u);
  const auto op = [&](size_t from_end) { return requests[requests.size() - from_end].op; };
  EXPECT_EQ(op(3), static_cast<uint16_t>(shm::Op::kCopyBox));
  EXPECT_EQ(op(2), static_cast<uint16_t>(shm::Op::kCopyBox));
  EXPECT_EQ(op(1), static_cast<uint16_t>(shm::Op::kSynchronizeStream));
}

// Another program, or another context, has streams that the executor does not order behind the copy.
TEST(CopyLinear, ABlockingCopyWaitsOnceOthersMayLook) {
  enum class Way { kNobody, kOffered, kOpened, kSecondContext };
  for (const Way way : {Way::kNobody, Way::kOffered, Way::kOpened, Way::kSecondContext}) {
    FakeExecutor executor;
    ScriptMemory(&executor);
    executor.On(shm::Op::kOffer, [](const FakeRequest&, FakeReply* reply) { reply->Append(shm::SharedName{}); });
    executor.On(shm::Op::kOpenShared, [](const FakeRequest&, FakeReply* reply) {
      shm::OpenedShared opened{};
      opened.value = 0x580000000000;
      opened.size_bytes = 4096;
      opened.num_opens = 1;
      reply->Append(opened);
    });
    EXPECT_EQ(RunInChild(executor.socket_path(),
                         [way] {
                           if (Begin() != 0) return 1;
                           CUdeviceptr device = 0, opened = 0;
                           REQUIRE(SHIM(cuMemAlloc_v2)(&device, 4096) == CUDA_SUCCESS);
                           CUcontext first = nullptr, second = nullptr;
                           REQUIRE(SHIM(cuCtxGetCurrent)(&first) == CUDA_SUCCESS);
                           CUipcMemHandle handle{};
                           if (way == Way::kOffered) {
                             REQUIRE(SHIM(cuIpcGetMemHandle)(&handle, device) == CUDA_SUCCESS);
                           } else if (way == Way::kOpened) {
                             shm::SharedName name{};
                             name.magic = shm::kSharedMagic;
                             name.kind = static_cast<uint32_t>(shm::SharedKind::kAllocation);
                             std::memcpy(&handle, &name, sizeof(name));
                             REQUIRE(SHIM(cuIpcOpenMemHandle_v2)(&opened, handle, 1) == CUDA_SUCCESS);
                           } else if (way == Way::kSecondContext) {
                             REQUIRE(SHIM(cuCtxCreate_v2)(&second, 0, 0) == CUDA_SUCCESS);
                           }
                           REQUIRE(SHIM(cuCtxSetCurrent)(first) == CUDA_SUCCESS);
                           const char bytes[16] = {};
                           for (int n = 0; n < 2; ++n)
                             REQUIRE(SHIM(cuMemcpyHtoD_v2)(device, bytes, sizeof(bytes)) == CUDA_SUCCESS);
                           return 0;
                         }),
              0);
    EXPECT_EQ(FlagsOfCopies(executor), (std::vector<uint16_t>{kWaits, way == Way::kNobody ? kEarly : kWaits}))
        << static_cast<int>(way);
  }
}

}  // namespace
}  // namespace tally::client_shim
