#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

class LaunchTest : public DriverTest {
 protected:
  CUresult Shape(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared = 0) {
    return cuLaunchKernel(Kernel("bounded"), gx, gy, gz, bx, by, bz, shared, nullptr, nullptr, nullptr);
  }
  CUresult WithAttribute(const char* kernel, unsigned grid, CUlaunchAttribute attribute, void** parameters) {
    CUlaunchConfig config{};
    config.gridDimX = grid;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = 32;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cuLaunchKernelEx(&config, Kernel(kernel), parameters, nullptr);
  }
};

TEST_F(LaunchTest, RunsOverTheWholeGrid) {
  constexpr uint32_t kCount = 10'000;
  const CUdeviceptr out = Allocate(kCount * 4);
  ASSERT_OK(Launch("fill", (kCount + 127) / 128, 128, nullptr, out, 17U, kCount));
  EXPECT_EQ(std::vector<uint32_t>(kCount, 17), Read(out, kCount));
}

TEST_F(LaunchTest, BadShapes) {
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, Shape(0, 1, 1, 1, 1, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, Shape(1, 1, 1, 0, 1, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, Shape(1, 65536, 1, 1, 1, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, Shape(1, 1, 65536, 1, 1, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, Shape(0x80000000U, 1, 1, 1, 1, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, Shape(1, 1, 1, 2048, 1, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, Shape(1, 1, 1, 1, 1, 65));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, Shape(1, 1, 1, 32, 32, 2));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, Shape(1, 1, 1, 1, 1, 1, 48 * 1024 + 1));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, Shape(1, 1, 1, 65, 1, 1));
  EXPECT_OK(Shape(1, 1, 1, 64, 1, 1, 48 * 1024));
  EXPECT_OK(cuCtxSynchronize());  // none of these was fatal
}

TEST_F(LaunchTest, Parameters) {
  const CUdeviceptr out = Allocate(4);
  uint32_t words[3] = {100, 20, 3};
  void* pointers[] = {const_cast<CUdeviceptr*>(&out), words};
  const CUfunction function = Kernel("struct_sum");
  EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, nullptr));
  EXPECT_EQ(123U, Read(out, 1)[0]);

  struct {
    CUdeviceptr out;
    uint32_t words[3];
  } packed{out, {4, 5, 6}};
  size_t size = 20;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(15U, Read(out, 1)[0]);

  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, extra));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  size = 19;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  pointers[1] = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, pointers, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
}

TEST_F(LaunchTest, DynamicSharedMemory) {
  const CUdeviceptr out = Allocate(32 * 4);
  void* pointers[] = {const_cast<CUdeviceptr*>(&out)};
  const CUfunction function = Kernel("reverse");
  ASSERT_OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 128, nullptr, pointers, nullptr));
  const std::vector<uint32_t> words = Read(out, 32);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(31 - i, words[i]);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 100 << 10, nullptr, pointers, nullptr));
  EXPECT_OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
  EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 100 << 10, nullptr, pointers, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 228 << 10));
  EXPECT_OK(cuCtxSynchronize());
}

TEST_F(LaunchTest, Clusters) {
  const CUdeviceptr out = Allocate(4);
  EXPECT_OK(cuMemsetD32_v2(out, 0, 1));
  void* pointers[] = {const_cast<CUdeviceptr*>(&out)};
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {4, 1, 1};
  EXPECT_OK(WithAttribute("count_blocks", 8, cluster, pointers));
  EXPECT_EQ(8U, Read(out, 1)[0]);
  EXPECT_EQ(CUDA_ERROR_INVALID_CLUSTER_SIZE, WithAttribute("count_blocks", 6, cluster, pointers));
  cluster.value.clusterDim = {16, 1, 1};
  EXPECT_EQ(CUDA_ERROR_INVALID_CLUSTER_SIZE, WithAttribute("count_blocks", 16, cluster, pointers));
  cluster.value.clusterDim = {0x10000, 0x10000, 0x10000};
  EXPECT_EQ(CUDA_ERROR_INVALID_CLUSTER_SIZE, WithAttribute("count_blocks", 16, cluster, pointers));
  cluster.id = static_cast<CUlaunchAttributeID>(999);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, WithAttribute("count_blocks", 16, cluster, pointers));
}

TEST_F(LaunchTest, CooperativeGridMustFit) {
  const CUdeviceptr out = Allocate(4);
  EXPECT_OK(cuMemsetD32_v2(out, 0, 1));
  void* pointers[] = {const_cast<CUdeviceptr*>(&out)};
  const CUfunction function = Kernel("count_blocks");
  int per_multiprocessor = 0;
  EXPECT_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, function, 256, 0));
  EXPECT_EQ(8, per_multiprocessor);
  const auto most = static_cast<unsigned>(per_multiprocessor) * 16;
  EXPECT_OK(cuLaunchCooperativeKernel(function, most, 1, 1, 256, 1, 1, 0, nullptr, pointers));
  EXPECT_EQ(most, Read(out, 1)[0]);
  EXPECT_EQ(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
            cuLaunchCooperativeKernel(function, most + 1, 1, 1, 256, 1, 1, 0, nullptr, pointers));
  EXPECT_EQ(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
            cuLaunchCooperativeKernel(function, 0x7fffffff, 65535, 65535, 256, 1, 1, 0, nullptr, pointers));
}

TEST_F(LaunchTest, Occupancy) {
  const CUfunction function = Kernel("count_blocks");
  int blocks = 0, grid = 0, block = 0, clusters = 0, cluster = 0;
  size_t shared = 0;
  EXPECT_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32, 0));
  EXPECT_EQ(32, blocks);
  EXPECT_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32, 100 << 10));
  EXPECT_EQ(2, blocks);
  EXPECT_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 1025, 0));
  EXPECT_EQ(0, blocks);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 0, 0));
  EXPECT_OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, nullptr, 0, 0));
  EXPECT_EQ(1024, block);
  EXPECT_EQ(32, grid);
  EXPECT_OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, Kernel("bounded"), nullptr, 0, 0));
  EXPECT_EQ(64, block);
  EXPECT_OK(cuOccupancyAvailableDynamicSMemPerBlock(&shared, function, 2, 32));
  EXPECT_EQ((228U << 10) / 2 - 1024, shared);
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 1024;
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {8, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  EXPECT_OK(cuOccupancyMaxActiveClusters(&clusters, function, &config));
  EXPECT_EQ(4, clusters);
  EXPECT_OK(cuOccupancyMaxPotentialClusterSize(&cluster, function, &config));
  EXPECT_EQ(8, cluster);
}

// A kernel that needs 128 registers: 16 warps fill the 65536 of a multiprocessor.
TEST_F(LaunchTest, RegistersBoundTheBlocks) {
  std::string loads, sums;
  for (int i = 1; i <= 120; ++i) {
    loads += "ld.volatile.global.u32 %r" + std::to_string(i) + ",[%rd1+" + std::to_string(4 * i) + "];\n";
    sums += "add.u32 %r0,%r0,%r" + std::to_string(i) + ";\n";
  }
  const std::string text =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry many(.param .u64 p){\n"
      ".reg .b32 %r<121>; .reg .b64 %rd<2>; ld.param.u64 %rd1,[p]; mov.u32 %r0,0;\n" +
      loads + sums + "st.global.u32 [%rd1],%r0; ret;}\n";
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_OK(cuModuleLoadData(&module, text.c_str()));
  ASSERT_OK(cuModuleGetFunction(&function, module, "many"));
  int registers = 0, blocks = 0;
  EXPECT_OK(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
  ASSERT_GT(registers, 120);
  ASSERT_LE(registers, 128);
  for (const auto& [threads, fitting] : {std::pair{32, 16}, {64, 8}, {192, 2}, {512, 1}, {544, 0}}) {
    EXPECT_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, 0));
    EXPECT_EQ(fitting, blocks) << threads;
  }
}

TEST_F(LaunchTest, FaultNamesKernelAndPlace) {
  const CUdeviceptr address = Allocate(4);
  testing::internal::CaptureStderr();
  EXPECT_OK(Launch("store_at", 1, 1, nullptr, address + 4096));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_EQ(0U, line.find("tally sim: ")) << line;
  EXPECT_NE(std::string::npos, line.find("store_at")) << line;
  EXPECT_NE(std::string::npos, line.find("PTX line")) << line;
  EXPECT_EQ(line.size() - 1, line.find('\n')) << line;
}

TEST_F(LaunchTest, MisalignedAddress) {
  const CUdeviceptr address = Allocate(8);
  EXPECT_OK(Launch("store_at", 1, 1, nullptr, address + 2));
  EXPECT_EQ(CUDA_ERROR_MISALIGNED_ADDRESS, cuCtxSynchronize());
}

size_t ResidentBytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST_F(LaunchTest, TenThousandLaunchesLeaveNothingBehind) {
  const CUdeviceptr out = Allocate(4);
  EXPECT_OK(cuMemsetD32_v2(out, 0, 1));
  EXPECT_OK(cuCtxSynchronize());  // the stream does not wait for the legacy one
  const CUstream stream = NewStream();
  const auto run = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_OK(Launch("increment", 1, 32, stream, out, 1U));
      CUdeviceptr scratch = 0;
      ASSERT_OK(cuMemAllocAsync(&scratch, 1000, stream));
      ASSERT_OK(cuMemFreeAsync(scratch, stream));
      const CUevent event = NewEvent();
      ASSERT_OK(cuEventRecord(event, stream));
      ASSERT_OK(cuEventDestroy_v2(event));
      if (i % 100 == 99) {
        ASSERT_OK(cuStreamSynchronize(stream));
      }
    }
    ASSERT_OK(cuStreamSynchronize(stream));
  };
  run(2000);
  const size_t before = ResidentBytes();
  run(8000);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep freed memory
  EXPECT_LT(ResidentBytes(), before + (8U << 20));
#else
  static_cast<void>(before);
#endif
  EXPECT_EQ(10'000U, Read(out, 1)[0]);
}

}  // namespace
}  // namespace tally::sim_driver
