#include <sys/mman.h>

#include <chrono>
#include <thread>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

class MemoryTest : public DriverTest {};

TEST_F(MemoryTest, AllocationsAreAlignedAndAccounted) {
  size_t before = 0, during = 0, after = 0, total = 0;
  EXPECT_OK(cuMemGetInfo_v2(&before, &total));
  const CUdeviceptr small = Allocate(1);
  const CUdeviceptr large = Allocate(10 << 20);
  EXPECT_EQ(0U, small % 512);
  EXPECT_EQ(0U, large % 512);
  EXPECT_OK(cuMemGetInfo_v2(&during, &total));
  EXPECT_EQ(before - during, (size_t{10} << 20) + 512);
  EXPECT_OK(cuMemFree_v2(small));
  EXPECT_OK(cuMemFree_v2(large));
  EXPECT_OK(cuMemGetInfo_v2(&after, &total));
  EXPECT_EQ(before, after);
}

TEST_F(MemoryTest, HostileSizes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&address, 0));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, SIZE_MAX));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, (size_t{4} << 30) + 1));
  size_t pitch = 0;
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch_v2(&address, &pitch, SIZE_MAX / 2, 4, 4));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch_v2(&address, &pitch, 1 << 20, SIZE_MAX / 2, 4));
  void* host = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&host, 0, 0));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc(&host, SIZE_MAX - 5, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc(&host, 4, 0x100));
}

TEST_F(MemoryTest, BadFreesAreRefused) {
  const CUdeviceptr address = Allocate(4096);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address + 512));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(12345));
  EXPECT_OK(cuMemFree_v2(0));
  EXPECT_OK(cuMemFree_v2(address));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
  CUdeviceptr counter = 0;
  Kernel("fill");
  EXPECT_OK(cuModuleGetGlobal_v2(&counter, nullptr, module_, "counter"));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(counter));
}

TEST_F(MemoryTest, FreedAddressesDoNotComeBackSoon) {
  const CUdeviceptr first = Allocate(4096);
  EXPECT_OK(cuMemFree_v2(first));
  for (int i = 0; i < 100; ++i) {
    const CUdeviceptr next = Allocate(4096);
    EXPECT_NE(first, next);
    EXPECT_OK(cuMemFree_v2(next));
  }
  uint32_t word = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(&word, first, 4));
}

TEST_F(MemoryTest, FreeWaitsForTheDevice) {
  uint32_t* const flags = NewFlags();
  const CUdeviceptr out = Allocate(4);
  ASSERT_OK(Launch("wait_for_flag", 1, 1, NewStream(), Address(flags), out, 5U));
  std::thread raiser([flags] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Raise(flags);
  });
  EXPECT_OK(cuMemFree_v2(out));
  EXPECT_EQ(1U, Peek(flags));
  raiser.join();
  EXPECT_OK(cuCtxSynchronize());
}

TEST_F(MemoryTest, PinnedMemoryHasOneAddress) {
  void* host = nullptr;
  ASSERT_OK(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr device = 0;
  EXPECT_OK(cuMemHostGetDevicePointer_v2(&device, host, 0));
  EXPECT_EQ(Address(host), device);
  unsigned flags = 0;
  EXPECT_OK(cuMemHostGetFlags(&flags, host));
  EXPECT_EQ(3U, flags);
  ASSERT_OK(Launch("fill", 1, 32, nullptr, device, 9U, 32U));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(9U, static_cast<uint32_t*>(host)[31]);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(static_cast<char*>(host) + 8));
  EXPECT_OK(cuMemFreeHost(host));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
}

TEST_F(MemoryTest, RegisteredMemory) {
  std::vector<uint32_t> words(1024);
  EXPECT_OK(cuMemHostRegister_v2(words.data(), words.size() * 4, CU_MEMHOSTREGISTER_DEVICEMAP));
  EXPECT_EQ(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(&words[5], 8, 0));
  ASSERT_OK(Launch("fill", 1, 32, nullptr, Address(words.data()), 4U, 32U));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(4U, words[31]);
  EXPECT_EQ(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(&words[1]));
  EXPECT_OK(cuMemHostUnregister(words.data()));
  EXPECT_EQ(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(words.data()));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(reinterpret_cast<void*>(4096), 4096, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(words.data(), SIZE_MAX, 0));
}

TEST_F(MemoryTest, ManagedMemoryIsSharedWithTheHost) {
  CUdeviceptr address = 0;
  ASSERT_OK(cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL));
  auto* const words = reinterpret_cast<uint32_t*>(address);
  words[0] = 10;
  ASSERT_OK(Launch("increment", 1, 1, nullptr, address, 1U));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(11U, words[0]);
  unsigned is_managed = 0;
  EXPECT_OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
  EXPECT_EQ(1U, is_managed);
  EXPECT_OK(cuMemFree_v2(address));
}

TEST_F(MemoryTest, PointerAttributes) {
  const CUdeviceptr address = Allocate(1000);
  unsigned type = 0;
  EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 999));
  EXPECT_EQ(static_cast<unsigned>(CU_MEMORYTYPE_DEVICE), type);
  CUcontext context = nullptr;
  EXPECT_OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
  EXPECT_EQ(context_, context);
  CUdeviceptr start = 0;
  size_t size = 0;
  EXPECT_OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 7));
  EXPECT_OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 7));
  EXPECT_EQ(address, start);
  EXPECT_EQ(1000U, size);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 1000));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4096));
  void* host = &host;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address));

  // The plural form answers with zeros instead.
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      CU_POINTER_ATTRIBUTE_CONTEXT};
  int ordinal = 0;
  void* values[] = {&type, &ordinal, &context};
  EXPECT_OK(cuPointerGetAttributes(3, attributes, values, Address(&ordinal)));
  EXPECT_EQ(0U, type);
  EXPECT_EQ(-2, ordinal);
  EXPECT_EQ(nullptr, context);
  CUdeviceptr base = 0;
  EXPECT_OK(cuMemGetAddressRange_v2(&base, &size, address + 3));
  EXPECT_EQ(address, base);
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &size, 4096));
}

TEST_F(MemoryTest, PoolAllocations) {
  const CUstream stream = NewStream();
  CUdeviceptr address = 0;
  ASSERT_OK(cuMemAllocAsync(&address, 1 << 20, stream));
  ASSERT_OK(Launch("fill", 1, 32, stream, address, 77U, 32U));
  uint32_t word = 0;
  ASSERT_OK(cuMemcpyDtoHAsync_v2(&word, address, 4, stream));
  CUmemoryPool pool = nullptr, named = nullptr;
  EXPECT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
  EXPECT_OK(cuPointerGetAttribute(&named, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
  EXPECT_EQ(pool, named);
  uint64_t used = 0;
  EXPECT_OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(uint64_t{1} << 20, used);
  ASSERT_OK(cuMemFreeAsync(address, stream));
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(77U, word);
  EXPECT_OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(0U, used);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(address, stream));
  EXPECT_OK(cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool));
}

TEST_F(MemoryTest, OwnPools) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  properties.maxSize = 1 << 20;
  CUmemoryPool pool = nullptr, current = nullptr;
  ASSERT_OK(cuMemPoolCreate(&pool, &properties));
  uint64_t threshold = 123456;
  EXPECT_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  threshold = 0;
  EXPECT_OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  EXPECT_EQ(123456U, threshold);
  CUdeviceptr address = 0;
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&address, 2 << 20, pool, nullptr));
  EXPECT_OK(cuMemAllocFromPoolAsync(&address, 1 << 20, pool, nullptr));
  // Room that a free, still to come, will make.
  EXPECT_OK(cuMemFreeAsync(address, nullptr));
  EXPECT_OK(cuMemAllocFromPoolAsync(&address, 1 << 20, pool, nullptr));
  EXPECT_OK(cuDeviceSetMemPool(0, pool));
  EXPECT_OK(cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(pool, current);
  EXPECT_OK(cuMemPoolDestroy(pool));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool));
  EXPECT_OK(cuDeviceGetMemPool(&current, 0));
  EXPECT_NE(pool, current);
  EXPECT_OK(cuMemFree_v2(address));
}

// An array has one, two or three extents, in this order; only layers need no height below them.
TEST_F(MemoryTest, ArraysThatLackAnExtentAreRefused) {
  CUDA_ARRAY3D_DESCRIPTOR description{};
  description.Width = 8;
  description.Depth = 4;
  description.Format = CU_AD_FORMAT_FLOAT;
  description.NumChannels = 1;
  CUarray array = nullptr;
  CUmipmappedArray mipmap = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, &description));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayCreate(&mipmap, &description, 2));
  description.Flags = CUDA_ARRAY3D_LAYERED;
  ASSERT_OK(cuArray3DCreate_v2(&array, &description));
  EXPECT_OK(cuArrayDestroy(array));
  description.Depth = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, &description));
  description.Flags = 0;
  description.Height = 8;
  description.Depth = 4;
  ASSERT_OK(cuArray3DCreate_v2(&array, &description));
  EXPECT_OK(cuArrayDestroy(array));
}

}  // namespace
}  // namespace tally::sim_driver
