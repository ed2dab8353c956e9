// Driver API: allocation in all forms, linear and boxed copies, fills, pools, attributes of pointers and ranges.
#include "tests/programs/driver_symbols.h"

namespace {

constexpr size_t kBytes = 4096;
CUstream g_stream;

std::vector<unsigned char> Pattern(size_t size, unsigned seed) {
  std::vector<unsigned char> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + seed);
  return bytes;
}

std::vector<unsigned char> ReadBack(CUdeviceptr from, size_t size) {
  std::vector<unsigned char> bytes(size);
  OK(DRIVER(cuStreamSynchronize)(g_stream));
  OK(DRIVER(cuMemcpyDtoH_v2)(bytes.data(), from, size));
  return bytes;
}

CUdeviceptr Allocate(size_t size) {
  CUdeviceptr memory = 0;
  OK(DRIVER(cuMemAlloc_v2)(&memory, size));
  return memory;
}

void Allocation() {
  size_t free_bytes = 0, total = 0, pitch = 0, size = 0;
  OK(DRIVER(cuMemGetInfo_v2)(&free_bytes, &total));
  EXPECT(free_bytes <= total && total != 0);
  CUdeviceptr memory = Allocate(1000), base = 0;
  OK(DRIVER(cuMemGetAddressRange_v2)(&base, &size, memory + 500));
  EXPECT(base == memory && size >= 1000);
  OK(DRIVER(cuMemFree_v2)(memory));
  INVALID(DRIVER(cuMemFree_v2)(memory));
  OK(DRIVER(cuMemFree_v2)(0));
  INVALID(DRIVER(cuMemAlloc_v2)(nullptr, 16));
  INVALID(DRIVER(cuMemAlloc_v2)(&memory, 0));
  EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, DRIVER(cuMemAlloc_v2)(&memory, size_t{1} << 50));
  FAILS(DRIVER(cuMemGetAddressRange_v2)(&base, &size, 0x1000));
  OK(DRIVER(cuMemAllocPitch_v2)(&memory, &pitch, 100, 10, 4));
  EXPECT(pitch >= 100 && pitch % 32 == 0);
  OK(DRIVER(cuMemFree_v2)(memory));
  INVALID(DRIVER(cuMemAllocPitch_v2)(&memory, &pitch, 100, 10, 3));

  void* host = nullptr;
  unsigned int flags = 0;
  OK(DRIVER(cuMemAllocHost_v2)(&host, kBytes));
  memset(host, 1, kBytes);
  OK(DRIVER(cuMemFreeHost)(host));
  OK(DRIVER(cuMemHostAlloc)(&host, kBytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  OK(DRIVER(cuMemHostGetDevicePointer_v2)(&memory, host, 0));
  EXPECT(memory == reinterpret_cast<CUdeviceptr>(host));
  OK(DRIVER(cuMemHostGetFlags)(&flags, host));
  EXPECT((flags & CU_MEMHOSTALLOC_DEVICEMAP) != 0);
  OK(DRIVER(cuMemFreeHost)(host));
  INVALID(DRIVER(cuMemHostAlloc)(nullptr, kBytes, 0));
  int local = 0;
  FAILS(DRIVER(cuMemFreeHost)(&local));
  FAILS(DRIVER(cuMemHostGetFlags)(&flags, &local));

  OK(DRIVER(cuMemAllocManaged)(&memory, kBytes, CU_MEM_ATTACH_GLOBAL));
  memset(reinterpret_cast<void*>(memory), 3, kBytes);
  EXPECT(ReadBack(memory, 1)[0] == 3);
  OK(DRIVER(cuStreamAttachMemAsync)(g_stream, memory, 0, CU_MEM_ATTACH_SINGLE));
  CUmemLocation device{};
  device.type = CU_MEM_LOCATION_TYPE_DEVICE;
  device.id = 0;
  // Hints: a device may not take them for managed memory of this kind.
  DRIVER(cuMemAdvise)(memory, kBytes, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
  DRIVER(cuMemAdvise_v2)(memory, kBytes, CU_MEM_ADVISE_UNSET_READ_MOSTLY, device);
  DRIVER(cuMemPrefetchAsync)(memory, kBytes, 0, g_stream);
  DRIVER(cuMemPrefetchAsync_v2)(memory, kBytes, device, 0, g_stream);
  int value = -1;
  OK(DRIVER(cuMemRangeGetAttribute)(&value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, kBytes));
  void* values[] = {&value};
  size_t sizes[] = {sizeof(value)};
  CUmem_range_attribute attributes[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY};
  OK(DRIVER(cuMemRangeGetAttributes)(values, sizes, attributes, 1, memory, kBytes));
  OK(DRIVER(cuStreamSynchronize)(g_stream));
  OK(DRIVER(cuMemFree_v2)(memory));
}

void LinearCopies() {
  const auto first = Pattern(kBytes, 1), second = Pattern(kBytes, 2);
  const CUdeviceptr a = Allocate(kBytes), b = Allocate(kBytes);
  CUcontext context = nullptr;
  OK(DRIVER(cuCtxGetCurrent)(&context));
  std::vector<unsigned char> out(kBytes);
  const auto host = [](const std::vector<unsigned char>& bytes) { return reinterpret_cast<CUdeviceptr>(bytes.data()); };

  OK(DRIVER(cuMemcpyHtoD_v2)(a, first.data(), kBytes));
  OK(DRIVER(cuMemcpyDtoD_v2)(b, a, kBytes));
  EXPECT(ReadBack(b, kBytes) == first);
  OK(DRIVER(cuMemcpyHtoDAsync_v2)(a, second.data(), kBytes, g_stream));
  OK(DRIVER(cuMemcpyDtoDAsync_v2)(b, a, kBytes, g_stream));
  OK(DRIVER(cuMemcpyDtoHAsync_v2)(out.data(), b, kBytes, g_stream));
  OK(DRIVER(cuStreamSynchronize)(g_stream));
  EXPECT(out == second);
  OK(DRIVER(cuMemcpy)(a, host(first), kBytes));
  OK(DRIVER(cuMemcpyAsync)(b, a, kBytes, g_stream));
  EXPECT(ReadBack(b, kBytes) == first);
  OK(DRIVER(cuMemcpyHtoD_v2)(a, second.data(), kBytes));
  OK(DRIVER(cuMemcpyPeer)(b, context, a, context, kBytes));
  EXPECT(ReadBack(b, kBytes) == second);
  OK(DRIVER(cuMemcpyHtoD_v2)(a, first.data(), kBytes));
  OK(DRIVER(cuMemcpyPeerAsync)(b, context, a, context, kBytes, g_stream));
  EXPECT(ReadBack(b, kBytes) == first);
  INVALID(DRIVER(cuMemcpyHtoD_v2)(0, first.data(), kBytes));
  INVALID(DRIVER(cuMemcpyDtoH_v2)(out.data(), 0, kBytes));
  FAILS(DRIVER(cuMemcpyHtoD_v2)(a, first.data(), kBytes + (1 << 22)));
  OK(DRIVER(cuMemcpyHtoD_v2)(0, nullptr, 0));

  CUdeviceptr to[] = {b, b + 1024}, from[] = {a, a + 2048};
  size_t sizes[] = {512, 512}, which[] = {0}, failed = 0;
  CUmemcpyAttributes attributes[1] = {};
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  OK(DRIVER(cuMemsetD8_v2)(b, 0, kBytes));
  OK(DRIVER(cuMemcpyBatchAsync)(to, from, sizes, 2, attributes, which, 1, &failed, g_stream));
  auto expected = std::vector<unsigned char>(kBytes);
  memcpy(expected.data(), first.data(), 512);
  memcpy(expected.data() + 1024, first.data() + 2048, 512);
  EXPECT(ReadBack(b, kBytes) == expected);
  OK(DRIVER(cuMemsetD8_v2)(b, 0, kBytes));
  OK(DRIVER(cuMemcpyBatchAsync_v2)(to, from, sizes, 2, attributes, which, 1, g_stream));
  EXPECT(ReadBack(b, kBytes) == expected);
  OK(DRIVER(cuMemFree_v2)(a));
  OK(DRIVER(cuMemFree_v2)(b));
}

// 8 rows of 100 bytes from a packed host image into a pitched one and back; then two slices.
void BoxCopies() {
  constexpr size_t kWidth = 100, kRows = 8, kPitch = 256;
  const auto image = Pattern(kWidth * kRows * 2, 3);
  const CUdeviceptr memory = Allocate(kPitch * kRows * 2);
  const auto is_there = [&](size_t slices) {
    for (size_t row = 0; row < kRows * slices; ++row) {
      const auto got = ReadBack(memory + row * kPitch, kWidth);
      if (memcmp(got.data(), image.data() + row * kWidth, kWidth) != 0) return false;
    }
    return true;
  };
  CUDA_MEMCPY2D flat{};
  flat.srcMemoryType = CU_MEMORYTYPE_HOST;
  flat.srcHost = image.data();
  flat.srcPitch = kWidth;
  flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  flat.dstDevice = memory;
  flat.dstPitch = kPitch;
  flat.WidthInBytes = kWidth;
  flat.Height = kRows;
  CUDA_MEMCPY3D deep{};
  deep.srcMemoryType = CU_MEMORYTYPE_HOST;
  deep.srcHost = image.data();
  deep.srcPitch = kWidth;
  deep.srcHeight = kRows;
  deep.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  deep.dstDevice = memory;
  deep.dstPitch = kPitch;
  deep.dstHeight = kRows;
  deep.WidthInBytes = kWidth;
  deep.Height = kRows;
  deep.Depth = 2;
  CUDA_MEMCPY3D_PEER peer{};
  OK(DRIVER(cuCtxGetCurrent)(&peer.srcContext));
  peer.dstContext = peer.srcContext;
  peer.srcMemoryType = CU_MEMORYTYPE_HOST;
  peer.srcHost = image.data();
  peer.srcPitch = kWidth;
  peer.srcHeight = kRows;
  peer.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  peer.dstDevice = memory;
  peer.dstPitch = kPitch;
  peer.dstHeight = kRows;
  peer.WidthInBytes = kWidth;
  peer.Height = kRows;
  peer.Depth = 2;
  const auto clear = [&] { OK(DRIVER(cuMemsetD8_v2)(memory, 0, kPitch * kRows * 2)); };

  clear();
  OK(DRIVER(cuMemcpy2D_v2)(&flat));
  EXPECT(is_there(1));
  clear();
  OK(DRIVER(cuMemcpy2DUnaligned_v2)(&flat));
  EXPECT(is_there(1));
  clear();
  OK(DRIVER(cuMemcpy2DAsync_v2)(&flat, g_stream));
  EXPECT(is_there(1));
  clear();
  OK(DRIVER(cuMemcpy3D_v2)(&deep));
  EXPECT(is_there(2));
  clear();
  OK(DRIVER(cuMemcpy3DAsync_v2)(&deep, g_stream));
  EXPECT(is_there(2));
  clear();
  OK(DRIVER(cuMemcpy3DPeer)(&peer));
  EXPECT(is_there(2));
  clear();
  OK(DRIVER(cuMemcpy3DPeerAsync)(&peer, g_stream));
  EXPECT(is_there(2));
  INVALID(DRIVER(cuMemcpy2D_v2)(nullptr));
  INVALID(DRIVER(cuMemcpy3D_v2)(nullptr));
  flat.dstPitch = kWidth - 1;
  FAILS(DRIVER(cuMemcpy2D_v2)(&flat));
  OK(DRIVER(cuMemFree_v2)(memory));
}

void Fills() {
  const CUdeviceptr memory = Allocate(kBytes);
  const auto word = [&](size_t offset) {
    unsigned value = 0;
    OK(DRIVER(cuStreamSynchronize)(g_stream));
    OK(DRIVER(cuMemcpyDtoH_v2)(&value, memory + offset, 4));
    return value;
  };
  OK(DRIVER(cuMemsetD8_v2)(memory, 0x11, kBytes));
  EXPECT(word(100) == 0x11111111);
  OK(DRIVER(cuMemsetD16_v2)(memory, 0x1234, kBytes / 2));
  EXPECT(word(100) == 0x12341234);
  OK(DRIVER(cuMemsetD32_v2)(memory, 0xdeadbeef, kBytes / 4));
  EXPECT(word(100) == 0xdeadbeef);
  OK(DRIVER(cuMemsetD8Async)(memory, 0x22, kBytes, g_stream));
  EXPECT(word(100) == 0x22222222);
  OK(DRIVER(cuMemsetD16Async)(memory, 0x4321, kBytes / 2, g_stream));
  EXPECT(word(100) == 0x43214321);
  OK(DRIVER(cuMemsetD32Async)(memory, 0xfeedf00d, kBytes / 4, g_stream));
  EXPECT(word(100) == 0xfeedf00d);
  // Four rows of 64 bytes, 256 apart: what lies between stays.
  OK(DRIVER(cuMemsetD2D8_v2)(memory, 256, 0x33, 64, 4));
  EXPECT(word(256 + 60) == 0x33333333 && word(256 + 64) == 0xfeedf00d);
  OK(DRIVER(cuMemsetD2D16_v2)(memory, 256, 0x5555, 32, 4));
  EXPECT(word(512 + 60) == 0x55555555 && word(512 + 64) == 0xfeedf00d);
  OK(DRIVER(cuMemsetD2D32_v2)(memory, 256, 7, 16, 4));
  EXPECT(word(512 + 60) == 7 && word(512 + 64) == 0xfeedf00d);
  OK(DRIVER(cuMemsetD2D8Async)(memory, 256, 0x44, 64, 4, g_stream));
  EXPECT(word(60) == 0x44444444);
  OK(DRIVER(cuMemsetD2D16Async)(memory, 256, 0x6666, 32, 4, g_stream));
  EXPECT(word(60) == 0x66666666);
  OK(DRIVER(cuMemsetD2D32Async)(memory, 256, 9, 16, 4, g_stream));
  EXPECT(word(60) == 9 && word(64) == 0xfeedf00d);
  INVALID(DRIVER(cuMemsetD8_v2)(0, 1, 16));
  FAILS(DRIVER(cuMemsetD32_v2)(memory + 1, 1, 4));
  OK(DRIVER(cuMemFree_v2)(memory));
}

void Pools() {
  int supported = 0;
  OK(DRIVER(cuDeviceGetAttribute)(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
  EXPECT(supported == 1);
  CUmemoryPool standard = nullptr, current = nullptr, pool = nullptr;
  OK(DRIVER(cuDeviceGetDefaultMemPool)(&standard, 0));
  OK(DRIVER(cuDeviceGetMemPool)(&current, 0));
  EXPECT(current == standard);
  OK(DRIVER(cuDeviceSetMemPool)(0, standard));
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  INVALID(DRIVER(cuMemPoolCreate)(nullptr, &properties));
  OK(DRIVER(cuMemPoolCreate)(&pool, &properties));
  cuuint64_t threshold = 1 << 20, read_back = 0;
  OK(DRIVER(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  OK(DRIVER(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &read_back));
  EXPECT(read_back == threshold);
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  OK(DRIVER(cuMemPoolSetAccess)(pool, &access, 1));
  CUmemAccess_flags flags;
  OK(DRIVER(cuMemPoolGetAccess)(&flags, pool, &access.location));
  EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CUdeviceptr a = 0, b = 0;
  OK(DRIVER(cuMemAllocAsync)(&a, kBytes, g_stream));
  OK(DRIVER(cuMemAllocFromPoolAsync)(&b, kBytes, pool, g_stream));
  OK(DRIVER(cuMemsetD8Async)(a, 0x5c, kBytes, g_stream));
  OK(DRIVER(cuMemcpyDtoDAsync_v2)(b, a, kBytes, g_stream));
  EXPECT(ReadBack(b, kBytes) == std::vector<unsigned char>(kBytes, 0x5c));
  OK(DRIVER(cuMemFreeAsync)(a, g_stream));
  OK(DRIVER(cuMemFreeAsync)(b, g_stream));
  OK(DRIVER(cuStreamSynchronize)(g_stream));
  OK(DRIVER(cuMemPoolTrimTo)(pool, 0));
  OK(DRIVER(cuMemPoolDestroy)(pool));
  FAILS(DRIVER(cuMemPoolDestroy)(standard));
  INVALID(DRIVER(cuMemAllocAsync)(nullptr, kBytes, g_stream));
}

// Several ranges of managed memory in one call; a stream with a name is wanted. Boxes in the first form of their call.
void Batches() {
  CUdeviceptr managed = 0, from = Allocate(kBytes), to = Allocate(kBytes);
  OK(DRIVER(cuMemAllocManaged)(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  CUmemLocation device{};
  device.type = CU_MEM_LOCATION_TYPE_DEVICE;
  device.id = 0;
  size_t sizes[] = {kBytes}, which[] = {0}, failed = 0;
  memset(reinterpret_cast<void*>(managed), 1, kBytes);
  OK(DRIVER(cuMemPrefetchBatchAsync)(&managed, sizes, 1, &device, which, 1, 0, g_stream));
  OK(DRIVER(cuStreamSynchronize)(g_stream));
  EXPECT(ReadBack(managed, kBytes) == std::vector<unsigned char>(kBytes, 1));
  // What was discarded may hold anything until it is written.
  OK(DRIVER(cuMemDiscardBatchAsync)(&managed, sizes, 1, 0, g_stream));
  OK(DRIVER(cuMemsetD8Async)(managed, 2, kBytes, g_stream));
  OK(DRIVER(cuStreamSynchronize)(g_stream));
  EXPECT(ReadBack(managed, kBytes) == std::vector<unsigned char>(kBytes, 2));
  OK(DRIVER(cuMemDiscardAndPrefetchBatchAsync)(&managed, sizes, 1, &device, which, 1, 0, g_stream));
  OK(DRIVER(cuMemsetD8Async)(managed, 3, kBytes, g_stream));
  OK(DRIVER(cuStreamSynchronize)(g_stream));
  EXPECT(ReadBack(managed, kBytes) == std::vector<unsigned char>(kBytes, 3));
  INVALID(DRIVER(cuMemPrefetchBatchAsync)(&managed, sizes, 1, &device, which, 1, 1, g_stream));
  INVALID(DRIVER(cuMemDiscardBatchAsync)(nullptr, sizes, 1, 0, g_stream));
  OK(DRIVER(cuMemFree_v2)(managed));

  CUDA_MEMCPY3D_BATCH_OP box{};
  box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  box.src.op.ptr.ptr = from;
  box.dst.op.ptr.ptr = to;
  box.src.op.ptr.locHint = box.dst.op.ptr.locHint = device;
  box.extent = {16, 4, kBytes / 64};
  box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  OK(DRIVER(cuMemsetD8Async)(from, 4, kBytes, g_stream));
  OK(DRIVER(cuMemsetD8Async)(to, 0, kBytes, g_stream));
  OK(DRIVER(cuMemcpy3DBatchAsync)(1, &box, &failed, 0, g_stream));
  OK(DRIVER(cuStreamSynchronize)(g_stream));
  EXPECT(ReadBack(to, kBytes) == std::vector<unsigned char>(kBytes, 4));
  OK(DRIVER(cuMemFree_v2)(from));
  OK(DRIVER(cuMemFree_v2)(to));
}

// The first form of the call, which has fewer flags.
void Registration() {
  constexpr size_t kPage = 4096;
  void* pages = nullptr;
  EXPECT(posix_memalign(&pages, kPage, 2 * kPage) == 0);
  memset(pages, 7, 2 * kPage);
  OK(DRIVER(cuMemHostRegister)(pages, 2 * kPage, CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr there = 0;
  OK(DRIVER(cuMemHostGetDevicePointer_v2)(&there, pages, 0));
  EXPECT(ReadBack(there, kBytes) == std::vector<unsigned char>(kBytes, 7));
  OK(DRIVER(cuMemsetD8Async)(there, 8, kPage, g_stream));
  OK(DRIVER(cuStreamSynchronize)(g_stream));
  EXPECT(static_cast<unsigned char*>(pages)[kPage - 1] == 8 && static_cast<unsigned char*>(pages)[kPage] == 7);
  OK(DRIVER(cuMemHostUnregister)(pages));
  FAILS(DRIVER(cuMemHostUnregister)(pages));
  INVALID(DRIVER(cuMemHostRegister)(nullptr, kPage, 0));
  free(pages);
}

void Pointers() {
  const CUdeviceptr memory = Allocate(kBytes);
  unsigned int type = 0;
  CUcontext context = nullptr, owner = nullptr;
  CUdeviceptr start = 0;
  size_t size = 0;
  OK(DRIVER(cuCtxGetCurrent)(&context));
  OK(DRIVER(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 5));
  EXPECT(type == CU_MEMORYTYPE_DEVICE);
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                      CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* values[] = {&owner, &start, &size};
  OK(DRIVER(cuPointerGetAttributes)(3, attributes, values, memory + 5));
  EXPECT(owner == context && start == memory && size >= kBytes);
  int enabled = 1;
  OK(DRIVER(cuPointerSetAttribute)(&enabled, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
  int local = 0;
  INVALID(
      DRIVER(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&local)));
  INVALID(DRIVER(cuPointerGetAttribute)(nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  OK(DRIVER(cuMemFree_v2)(memory));
}

void Checks() {
  const check::PrimaryContext context;
  // Not a non-blocking one: what the plain forms put on the legacy stream comes before.
  OK(DRIVER(cuStreamCreate)(&g_stream, CU_STREAM_DEFAULT));
  Allocation();
  LinearCopies();
  BoxCopies();
  Fills();
  Pools();
  Batches();
  Registration();
  Pointers();
  OK(DRIVER(cuStreamDestroy_v2)(g_stream));
}

}  // namespace

int main(int argc, char** argv) { return check::RunDriverProgram(argc, argv, Checks); }
