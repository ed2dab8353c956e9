// On the software GPU.
#include "server/executor/driver/upload_kernels.h"

#include <cstddef>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "tests/server/executor/issue/sim_device.h"

namespace tally::server {
namespace {

constexpr size_t kRoom = UploadKernels::kMostBytes + 64;

class UploadKernelsTest : public SimDeviceTest {
 protected:
  void SetUp() override {
    SimDeviceTest::SetUp();
    ASSERT_EQ(driver_.cuMemAlloc_v2(&to_, kRoom), CUDA_SUCCESS);
    void* host = nullptr;
    ASSERT_EQ(driver_.cuMemHostAlloc(&host, kRoom, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
    from_ = static_cast<std::byte*>(host);
    std::mt19937 random(7);
    for (size_t i = 0; i < kRoom; ++i) from_[i] = static_cast<std::byte>(random());
  }
  void TearDown() override {
    driver_.cuMemFree_v2(to_);
    driver_.cuMemFreeHost(from_);
    SimDeviceTest::TearDown();
  }

  CUdeviceptr to_ = 0;
  std::byte* from_ = nullptr;
};

TEST_F(UploadKernelsTest, CopiesExactlyWhatItIsToldWhateverIsAligned) {
  UploadKernels uploads(driver_);
  std::vector<std::byte> found(kRoom);
  for (const size_t size : {size_t{1}, size_t{15}, size_t{16}, size_t{17}, size_t{4095}, size_t{4096}, size_t{65537},
                            static_cast<size_t>(UploadKernels::kMostBytes)}) {
    for (const auto& [to_offset, from_offset] : {std::pair<size_t, size_t>{0, 0}, {16, 32}, {1, 0}, {0, 3}, {5, 5}}) {
      SCOPED_TRACE(testing::Message() << size << " bytes from " << from_offset << " to " << to_offset);
      ASSERT_EQ(driver_.cuMemsetD8Async(to_, 0xee, kRoom, nullptr), CUDA_SUCCESS);
      CUresult result = CUDA_ERROR_UNKNOWN;
      ASSERT_TRUE(
          uploads.Copy(0, to_ + to_offset, reinterpret_cast<CUdeviceptr>(from_ + from_offset), size, nullptr, &result));
      ASSERT_EQ(result, CUDA_SUCCESS);
      ASSERT_EQ(driver_.cuMemcpyDtoHAsync_v2(found.data(), to_, kRoom, nullptr), CUDA_SUCCESS);
      ASSERT_EQ(driver_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
      EXPECT_EQ(std::memcmp(found.data() + to_offset, from_ + from_offset, size), 0);
      for (size_t i = 0; i < kRoom; ++i) {
        if (i >= to_offset && i < to_offset + size) continue;
        ASSERT_EQ(found[i], std::byte{0xee}) << "at " << i;
      }
    }
  }
}

CUresult LoadsNothing(CUmodule*, const void*, unsigned int, CUjit_option*, void**) {
  return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

TEST_F(UploadKernelsTest, WhereCodeDoesNotLoadNothingIsPutOnTheStream) {
  DriverTable without = driver_;
  without.cuModuleLoadDataEx = &LoadsNothing;
  UploadKernels uploads(without);
  CUresult result = CUDA_SUCCESS;
  EXPECT_FALSE(uploads.Copy(0, to_, reinterpret_cast<CUdeviceptr>(from_), 16, nullptr, &result));
}

}  // namespace
}  // namespace tally::server
