#include <numeric>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

class CopyTest : public DriverTest {};

std::vector<uint32_t> Counting(size_t count) {
  std::vector<uint32_t> words(count);
  std::iota(words.begin(), words.end(), 1);
  return words;
}

TEST_F(CopyTest, ThereAndBack) {
  const std::vector<uint32_t> words = Counting(1 << 18);
  const size_t num_bytes = words.size() * 4;
  const CUdeviceptr a = Allocate(num_bytes), b = Allocate(num_bytes);
  EXPECT_OK(cuMemcpyHtoD_v2(a, words.data(), num_bytes));
  EXPECT_OK(cuMemcpyDtoD_v2(b, a, num_bytes));
  EXPECT_EQ(words, Read(b, words.size()));
  std::vector<uint32_t> back(words.size());
  EXPECT_OK(cuMemcpy(Address(back.data()), b, num_bytes));
  EXPECT_EQ(words, back);
}

TEST_F(CopyTest, PageableSourceMayBeReusedAtOnce) {
  // Behind a kernel that still waits, so the copy itself cannot have happened yet.
  uint32_t* const flags = NewFlags();
  const CUdeviceptr out = Allocate(64);
  const CUstream stream = NewStream();
  ASSERT_OK(Launch("wait_for_flag", 1, 1, stream, Address(flags), out, 1U));
  std::vector<uint32_t> words(16, 5);
  EXPECT_OK(cuMemcpyHtoDAsync_v2(out, words.data(), 64, stream));
  std::fill(words.begin(), words.end(), 6);
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  Raise(flags);
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(std::vector<uint32_t>(16, 5), Read(out, 16));
}

TEST_F(CopyTest, BadRangesAreRefused) {
  const CUdeviceptr address = Allocate(64);
  uint32_t words[32] = {};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address, words, 65));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address + 32, words, 33));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(4096, words, 4));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address, nullptr, 4));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(words, address, SIZE_MAX));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(address, address + 60, 8));
  EXPECT_OK(cuMemcpyHtoD_v2(address, words, 0));
  EXPECT_OK(cuMemFree_v2(address));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpy(Address(words), address, 4));
}

TEST_F(CopyTest, TwoDimensions) {
  CUdeviceptr device = 0;
  size_t pitch = 0;
  ASSERT_OK(cuMemAllocPitch_v2(&device, &pitch, 40, 8, 4));
  EXPECT_EQ(0U, pitch % 512);
  const std::vector<uint32_t> words = Counting(80);
  CUDA_MEMCPY2D up{};
  up.srcMemoryType = CU_MEMORYTYPE_HOST;
  up.srcHost = words.data();
  up.srcPitch = 40;
  up.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  up.dstDevice = device;
  up.dstPitch = pitch;
  up.WidthInBytes = 40;
  up.Height = 8;
  EXPECT_OK(cuMemcpy2D_v2(&up));
  // Rows 2 to 4, columns 3 to 6.
  std::vector<uint32_t> part(12);
  CUDA_MEMCPY2D down{};
  down.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  down.srcDevice = device;
  down.srcPitch = pitch;
  down.srcXInBytes = 12;
  down.srcY = 2;
  down.dstMemoryType = CU_MEMORYTYPE_HOST;
  down.dstHost = part.data();
  down.dstPitch = 16;
  down.WidthInBytes = 16;
  down.Height = 3;
  EXPECT_OK(cuMemcpy2DAsync_v2(&down, nullptr));
  for (uint32_t row = 0; row < 3; ++row) {
    for (uint32_t column = 0; column < 4; ++column) {
      EXPECT_EQ((row + 2) * 10 + column + 3 + 1, part[row * 4 + column]);
    }
  }
  down.Height = 100;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&down));
  down.Height = 2;
  down.srcPitch = 8;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&down));
  down.srcPitch = pitch;
  down.srcY = SIZE_MAX / 2;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&down));
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuMemcpy2D_v2(&down));
}

TEST_F(CopyTest, ThreeDimensions) {
  // 4 x 3 x 2 words out of a 6 x 5 x 4 box.
  const std::vector<uint32_t> box = Counting(6 * 5 * 4);
  const CUdeviceptr device = Allocate(box.size() * 4);
  EXPECT_OK(cuMemcpyHtoD_v2(device, box.data(), box.size() * 4));
  std::vector<uint32_t> part(4 * 3 * 2);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = device;
  copy.srcPitch = 24;
  copy.srcHeight = 5;
  copy.srcXInBytes = 4;
  copy.srcY = 1;
  copy.srcZ = 2;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = part.data();
  copy.dstPitch = 16;
  copy.dstHeight = 3;
  copy.WidthInBytes = 16;
  copy.Height = 3;
  copy.Depth = 2;
  EXPECT_OK(cuMemcpy3D_v2(&copy));
  for (size_t z = 0; z < 2; ++z) {
    for (size_t y = 0; y < 3; ++y) {
      for (size_t x = 0; x < 4; ++x) {
        EXPECT_EQ(box[((z + 2) * 5 + y + 1) * 6 + x + 1], part[(z * 3 + y) * 4 + x]);
      }
    }
  }
}

TEST_F(CopyTest, Memsets) {
  const CUdeviceptr device = Allocate(4096);
  EXPECT_OK(cuMemsetD8_v2(device, 0xab, 4096));
  EXPECT_EQ(0xababababU, Read(device, 1)[0]);
  EXPECT_OK(cuMemsetD16_v2(device, 0x1234, 2));
  EXPECT_OK(cuMemsetD32Async(device + 4, 0xdeadbeef, 3, nullptr));
  EXPECT_EQ((std::vector<uint32_t>{0x12341234, 0xdeadbeef, 0xdeadbeef, 0xdeadbeef, 0xabababab}), Read(device, 5));
  EXPECT_OK(cuMemsetD2D32_v2(device, 64, 9, 2, 3));
  const std::vector<uint32_t> words = Read(device, 64);
  EXPECT_EQ(9U, words[0]);
  EXPECT_EQ(9U, words[33]);
  EXPECT_EQ(0xababababU, words[34]);
  EXPECT_EQ(0xababababU, words[48]);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(device + 2, 0, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(device, 0, 1025));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(device, 0, SIZE_MAX / 2));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(0, 0, 1));
}

}  // namespace
}  // namespace tally::sim_driver
