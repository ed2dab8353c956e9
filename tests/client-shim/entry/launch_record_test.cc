#include "client-shim/entry/launch_record.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

TEST(LaunchRecord, OwnParameterBuffersAreTakenUpToTheLongestThereIs) {
  FakeExecutor executor;
  ScriptKernel(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUfunction function = nullptr;
                         if (GetKernel(&function) != 0) return 1;
                         std::vector<char> buffer(shm::kMaxRequestBytes + 16, 'x');
                         size_t size = 0;
                         void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                                          &size, CU_LAUNCH_PARAM_END};
                         const auto launch = [&](size_t bytes) {
                           size = bytes;
                           return SHIM(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra);
                         };
                         REQUIRE(launch(shm::kMaxParameterBytes) == CUDA_SUCCESS);
                         REQUIRE(launch(shm::kMaxParameterBytes + 1) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(launch(buffer.size()) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(launch((size_t{1} << 32) + 16) == CUDA_ERROR_INVALID_VALUE);
                         REQUIRE(launch(16) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
  std::vector<uint32_t> sizes;
  for (const FakeRequest& request : executor.requests()) {
    if (request.op != static_cast<uint16_t>(shm::Op::kLaunch)) continue;
    const auto launch = request.Read<shm::Launch>();
    EXPECT_EQ(launch.flags, shm::kLaunchExtra);
    EXPECT_EQ(request.payload.size(), sizeof(launch) + launch.parameter_bytes);
    EXPECT_EQ(request.payload.back(), std::byte{'x'});
    sizes.push_back(launch.parameter_bytes);
  }
  EXPECT_EQ(sizes, (std::vector<uint32_t>{shm::kMaxParameterBytes, 16}));
}

// Launches copy by what the executor says of a kernel, without another look.
TEST(LaunchRecord, AKernelWhoseParametersEndBehindItsBytesIsNotTaken) {
  for (const shm::ParameterLayout second : {shm::ParameterLayout{8, 8}, shm::ParameterLayout{8, 9},
                                            shm::ParameterLayout{16, 1}, shm::ParameterLayout{17, 0}}) {
    FakeExecutor executor;
    ScriptKernel(&executor);
    executor.On(shm::Op::kGetFunction, [&](const FakeRequest&, FakeReply* reply) {
      shm::KernelDescription description{};
      description.handle = kFunctionHandle;
      description.num_parameters = 2;
      description.parameter_bytes = 16;
      reply->Append(description);
      reply->Append(shm::ParameterLayout{0, 4});
      reply->Append(second);
    });
    const bool is_good = second.offset_bytes + second.size_bytes <= 16;
    EXPECT_EQ(RunInChild(executor.socket_path(),
                         [is_good] {
                           if (Begin() != 0) return 1;
                           CUfunction function = nullptr;
                           CUmodule module = nullptr;
                           const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
                           REQUIRE(SHIM(cuModuleLoadData)(&module, ptx) == CUDA_SUCCESS);
                           REQUIRE((SHIM(cuModuleGetFunction)(&function, module, "kernel") == CUDA_SUCCESS) == is_good);
                           return 0;
                         }),
              0)
        << second.offset_bytes << " + " << second.size_bytes;
  }
}

}  // namespace
}  // namespace tally::client_shim
