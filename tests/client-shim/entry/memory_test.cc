#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

std::vector<FakeRequest> RequestsOf(FakeExecutor* executor, std::initializer_list<shm::Op> wanted) {
  std::vector<FakeRequest> found;
  for (FakeRequest& request : executor->requests()) {
    if (std::ranges::find(wanted, static_cast<shm::Op>(request.op)) != wanted.end())
      found.push_back(std::move(request));
  }
  return found;
}

// What the device has at an address that the program uses for something else would be taken for that.
TEST(Allocation, AtAnAddressThatTheProgramUsesIsMadeAnew) {
  constexpr uint64_t kTaken = 0x500000000000, kFree = 0x510000000000;
  FakeExecutor executor;
  executor.On(shm::Op::kAllocate, [num_asked = std::make_shared<int>(0)](const FakeRequest&, FakeReply* reply) {
    reply->Append(uint64_t{(*num_asked)++ == 0 ? kTaken : kFree});
    reply->Append(uint64_t{0});
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         void* own = ::mmap(reinterpret_cast<void*>(kTaken), 4096, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
                         REQUIRE(own == reinterpret_cast<void*>(kTaken));
                         *static_cast<int*>(own) = 42;
                         CUdeviceptr memory = 0;
                         REQUIRE(SHIM(cuMemAlloc_v2)(&memory, 4096) == CUDA_SUCCESS);
                         REQUIRE(memory == kFree);
                         REQUIRE(*static_cast<int*>(own) == 42);
                         REQUIRE(SHIM(cuMemFree_v2)(kTaken) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
  const auto requests = RequestsOf(&executor, {shm::Op::kAllocate, shm::Op::kFree});
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[1].op, static_cast<uint16_t>(shm::Op::kAllocate)) << "given back first, it would come again";
  EXPECT_EQ(requests[2].op, static_cast<uint16_t>(shm::Op::kFree));
  EXPECT_EQ(requests[2].Read<uint64_t>(), kTaken);
}

TEST(Allocation, ThatCouldNotBeFreedIsStillThere) {
  FakeExecutor executor;
  ScriptMemory(&executor);
  executor.On(shm::Op::kFree, [num_asked = std::make_shared<int>(0)](const FakeRequest&, FakeReply* reply) {
    if ((*num_asked)++ == 0) reply->result = CUDA_ERROR_LAUNCH_FAILED;
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUdeviceptr memory = 0;
                         char byte = 0;
                         REQUIRE(SHIM(cuMemAlloc_v2)(&memory, 4096) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemFree_v2)(memory) == CUDA_ERROR_LAUNCH_FAILED);
                         REQUIRE(SHIM(cuMemcpyHtoD_v2)(memory, &byte, 1) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemFree_v2)(memory) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemcpyHtoD_v2)(memory, &byte, 1) == CUDA_ERROR_INVALID_VALUE);
                         return 0;
                       }),
            0);
}

// Then it is recorded, not done: the graph may be thrown away, or run later, and the memory is there until then.
TEST(Allocation, FreedInACaptureIsStillThere) {
  FakeExecutor executor;
  ScriptStreams(&executor);
  executor.On(shm::Op::kAllocateAsync, [](const FakeRequest&, FakeReply* reply) {
    reply->Append(uint64_t{0x500000000000});
    reply->Append(uint64_t{0});
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
                         REQUIRE(SHIM(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemAllocAsync)(&memory, 4096, stream) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemFreeAsync)(memory, stream) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemsetD8Async)(memory, 0, 4096, stream) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemFreeAsync)(memory, stream) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuMemsetD8Async)(memory, 0, 4096, stream) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(SHIM(cuMemFreeAsync)(memory, stream) == CUDA_ERROR_INVALID_VALUE);
                         return 0;
                       }),
            0);
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

}  // namespace
}  // namespace tally::client_shim
