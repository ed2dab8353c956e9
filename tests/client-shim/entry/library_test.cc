#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

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

// A function belongs to a context; what another one got is none of this.
TEST(ShimCalls, AKernelHasAFunctionInEachContext) {
  constexpr uint64_t kLibrary = shm::MakeHandle(shm::HandleKind::kLibrary, 0, true, 1);
  FakeExecutor executor;
  executor.On(shm::Op::kLoadLibrary, [](const FakeRequest&, FakeReply* reply) {
    reply->Append(shm::LoadedImage{kLibrary, 0, 0});
  });
  executor.On(shm::Op::kGetKernel, [](const FakeRequest&, FakeReply* reply) {
    shm::KernelDescription description{};
    description.handle = shm::MakeHandle(shm::HandleKind::kKernel, 0, true, 1);
    reply->Append(description);
  });
  executor.On(shm::Op::kKernelFunction, [](const FakeRequest& request, FakeReply* reply) {
    shm::KernelDescription description{};
    description.handle = shm::MakeHandle(shm::HandleKind::kFunction, 0, true, request.context + 1);
    reply->Append(description);
  });
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUlibrary library = nullptr;
                         CUkernel kernel = nullptr;
                         CUcontext first = nullptr, second = nullptr;
                         const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
                         REQUIRE(SHIM(cuLibraryLoadData)(&library, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0) ==
                                 CUDA_SUCCESS);
                         REQUIRE(SHIM(cuLibraryGetKernel)(&kernel, library, "kernel") == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxGetCurrent)(&first) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxCreate_v2)(&second, 0, 0) == CUDA_SUCCESS);
                         CUfunction in_first[2] = {}, in_second[2] = {};
                         for (int i = 0; i < 2; ++i) {
                           REQUIRE(SHIM(cuCtxSetCurrent)(second) == CUDA_SUCCESS);
                           REQUIRE(SHIM(cuKernelGetFunction)(&in_second[i], kernel) == CUDA_SUCCESS);
                           REQUIRE(SHIM(cuCtxSetCurrent)(first) == CUDA_SUCCESS);
                           REQUIRE(SHIM(cuKernelGetFunction)(&in_first[i], kernel) == CUDA_SUCCESS);
                         }
                         REQUIRE(in_first[0] == in_first[1] && in_second[0] == in_second[1]);
                         REQUIRE(in_first[0] != in_second[0]);
                         return 0;
                       }),
            0);
}

}  // namespace
}  // namespace tally::client_shim
