// Driver API: every per-thread-default-stream form (_ptds, _ptsz), each with stream 0, which means the thread's own
// stream there. That it is not the legacy stream is seen at a capture: the thread's stream can be captured.
#include <atomic>

#include "tests/programs/driver_symbols.h"

namespace {

constexpr size_t kBytes = 1024;
CUcontext g_context;
CUfunction g_scale;
CUdeviceptr g_a, g_b;

std::vector<unsigned char> g_first, g_second;

void Wait() { OK(DRIVER(cuStreamSynchronize_ptsz)(nullptr)); }

std::vector<unsigned char> Read(CUdeviceptr from, size_t size = kBytes) {
  std::vector<unsigned char> bytes(size);
  OK(DRIVER(cuMemcpyDtoH_v2_ptds)(bytes.data(), from, size));
  return bytes;
}

unsigned Word(CUdeviceptr from) {
  const auto bytes = Read(from, 4);
  unsigned word = 0;
  memcpy(&word, bytes.data(), 4);
  return word;
}

void LinearCopies() {
  std::vector<unsigned char> out(kBytes);
  const auto host = [](const std::vector<unsigned char>& bytes) { return reinterpret_cast<CUdeviceptr>(bytes.data()); };
  OK(DRIVER(cuMemcpyHtoD_v2_ptds)(g_a, g_first.data(), kBytes));
  OK(DRIVER(cuMemcpyDtoD_v2_ptds)(g_b, g_a, kBytes));
  EXPECT(Read(g_b) == g_first);
  OK(DRIVER(cuMemcpyHtoDAsync_v2_ptsz)(g_a, g_second.data(), kBytes, nullptr));
  OK(DRIVER(cuMemcpyDtoDAsync_v2_ptsz)(g_b, g_a, kBytes, nullptr));
  OK(DRIVER(cuMemcpyDtoHAsync_v2_ptsz)(out.data(), g_b, kBytes, nullptr));
  Wait();
  EXPECT(out == g_second);
  OK(DRIVER(cuMemcpy_ptds)(g_a, host(g_first), kBytes));
  OK(DRIVER(cuMemcpyAsync_ptsz)(g_b, g_a, kBytes, nullptr));
  EXPECT(Read(g_b) == g_first);
  OK(DRIVER(cuMemcpyHtoD_v2_ptds)(g_a, g_second.data(), kBytes));
  OK(DRIVER(cuMemcpyPeer_ptds)(g_b, g_context, g_a, g_context, kBytes));
  EXPECT(Read(g_b) == g_second);
  OK(DRIVER(cuMemcpyHtoD_v2_ptds)(g_a, g_first.data(), kBytes));
  OK(DRIVER(cuMemcpyPeerAsync_ptsz)(g_b, g_context, g_a, g_context, kBytes, nullptr));
  EXPECT(Read(g_b) == g_first);
  // A batch needs a stream with a name: 0 is refused natively.
  CUstream stream = nullptr;
  OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr to[] = {g_b}, from[] = {g_a};
  size_t sizes[] = {kBytes}, which[] = {0}, failed = 0;
  CUmemcpyAttributes attributes[1] = {};
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  OK(DRIVER(cuMemsetD8_v2_ptds)(g_b, 0, kBytes));
  Wait();
  OK(DRIVER(cuMemcpyBatchAsync_ptsz)(to, from, sizes, 1, attributes, which, 1, &failed, stream));
  OK(DRIVER(cuStreamSynchronize_ptsz)(stream));
  EXPECT(Read(g_b) == g_first);
  OK(DRIVER(cuMemsetD8_v2_ptds)(g_b, 0, kBytes));
  Wait();
  OK(DRIVER(cuMemcpyBatchAsync_v2_ptsz)(to, from, sizes, 1, attributes, which, 1, stream));
  OK(DRIVER(cuStreamSynchronize_ptsz)(stream));
  EXPECT(Read(g_b) == g_first);
  OK(DRIVER(cuMemsetD8_v2_ptds)(g_b, 0, kBytes));
  Wait();
  CUDA_MEMCPY3D_BATCH_OP box{};
  box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  box.src.op.ptr.ptr = g_a;
  box.dst.op.ptr.ptr = g_b;
  box.src.op.ptr.locHint.type = box.dst.op.ptr.locHint.type = CU_MEM_LOCATION_TYPE_DEVICE;
  box.extent = {64, kBytes / 64, 1};
  box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  OK(DRIVER(cuMemcpy3DBatchAsync_ptsz)(1, &box, &failed, 0, stream));
  OK(DRIVER(cuStreamSynchronize_ptsz)(stream));
  EXPECT(Read(g_b) == g_first);
  OK(DRIVER(cuMemsetD8_v2_ptds)(g_b, 0, kBytes));
  Wait();
  OK(DRIVER(cuMemcpy3DBatchAsync_v2_ptsz)(1, &box, 0, stream));
  OK(DRIVER(cuStreamSynchronize_ptsz)(stream));
  EXPECT(Read(g_b) == g_first);
  OK(DRIVER(cuStreamDestroy_v2)(stream));
}

void ManagedBatches() {
  CUstream stream = nullptr;
  CUdeviceptr managed = 0;
  size_t sizes[] = {kBytes}, which[] = {0};
  CUmemLocation device{};
  device.type = CU_MEM_LOCATION_TYPE_DEVICE;
  OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  OK(DRIVER(cuMemAllocManaged)(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  memcpy(reinterpret_cast<void*>(managed), g_first.data(), kBytes);
  OK(DRIVER(cuMemPrefetchBatchAsync_ptsz)(&managed, sizes, 1, &device, which, 1, 0, stream));
  OK(DRIVER(cuStreamSynchronize_ptsz)(stream));
  EXPECT(Read(managed) == g_first);
  OK(DRIVER(cuMemDiscardBatchAsync_ptsz)(&managed, sizes, 1, 0, stream));
  OK(DRIVER(cuMemDiscardAndPrefetchBatchAsync_ptsz)(&managed, sizes, 1, &device, which, 1, 0, stream));
  OK(DRIVER(cuStreamSynchronize_ptsz)(stream));
  OK(DRIVER(cuMemcpyHtoD_v2_ptds)(managed, g_second.data(), kBytes));
  EXPECT(Read(managed) == g_second);
  OK(DRIVER(cuMemFree_v2)(managed));
  OK(DRIVER(cuStreamDestroy_v2)(stream));
}

void BoxCopies() {
  CUDA_MEMCPY2D flat{};
  flat.srcMemoryType = CU_MEMORYTYPE_HOST;
  flat.srcHost = g_first.data();
  flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  flat.dstDevice = g_a;
  flat.srcPitch = flat.dstPitch = flat.WidthInBytes = 64;
  flat.Height = kBytes / 64;
  CUDA_MEMCPY3D deep{};
  deep.srcMemoryType = CU_MEMORYTYPE_HOST;
  deep.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  deep.dstDevice = g_a;
  deep.srcPitch = deep.dstPitch = deep.WidthInBytes = 64;
  deep.srcHeight = deep.dstHeight = deep.Height = 4;
  deep.Depth = kBytes / 256;
  CUDA_MEMCPY3D_PEER peer{};
  peer.srcContext = peer.dstContext = g_context;
  peer.srcMemoryType = CU_MEMORYTYPE_HOST;
  peer.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  peer.dstDevice = g_a;
  peer.srcPitch = peer.dstPitch = peer.WidthInBytes = 64;
  peer.srcHeight = peer.dstHeight = peer.Height = 4;
  peer.Depth = kBytes / 256;
  // By turns from one and the other: each call is seen.
  OK(DRIVER(cuMemcpy2D_v2_ptds)(&flat));
  EXPECT(Read(g_a) == g_first);
  flat.srcHost = g_second.data();
  OK(DRIVER(cuMemcpy2DUnaligned_v2_ptds)(&flat));
  EXPECT(Read(g_a) == g_second);
  flat.srcHost = g_first.data();
  OK(DRIVER(cuMemcpy2DAsync_v2_ptsz)(&flat, nullptr));
  EXPECT(Read(g_a) == g_first);
  deep.srcHost = g_second.data();
  OK(DRIVER(cuMemcpy3D_v2_ptds)(&deep));
  EXPECT(Read(g_a) == g_second);
  deep.srcHost = g_first.data();
  OK(DRIVER(cuMemcpy3DAsync_v2_ptsz)(&deep, nullptr));
  EXPECT(Read(g_a) == g_first);
  peer.srcHost = g_second.data();
  OK(DRIVER(cuMemcpy3DPeer_ptds)(&peer));
  EXPECT(Read(g_a) == g_second);
  peer.srcHost = g_first.data();
  OK(DRIVER(cuMemcpy3DPeerAsync_ptsz)(&peer, nullptr));
  EXPECT(Read(g_a) == g_first);
}

void ArrayCopies() {
  CUDA_ARRAY_DESCRIPTOR row{};
  row.Width = kBytes;
  row.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  row.NumChannels = 1;
  CUarray array = nullptr, other = nullptr;
  OK(DRIVER(cuArrayCreate_v2)(&array, &row));
  OK(DRIVER(cuArrayCreate_v2)(&other, &row));
  std::vector<unsigned char> out(kBytes);
  OK(DRIVER(cuMemcpyHtoA_v2_ptds)(array, 0, g_first.data(), kBytes));
  OK(DRIVER(cuMemcpyAtoA_v2_ptds)(other, 0, array, 0, kBytes));
  OK(DRIVER(cuMemcpyAtoH_v2_ptds)(out.data(), other, 0, kBytes));
  EXPECT(out == g_first);
  OK(DRIVER(cuMemcpyHtoD_v2_ptds)(g_a, g_second.data(), kBytes));
  OK(DRIVER(cuMemcpyDtoA_v2_ptds)(array, 0, g_a, kBytes));
  OK(DRIVER(cuMemcpyAtoD_v2_ptds)(g_b, array, 0, kBytes));
  EXPECT(Read(g_b) == g_second);
  OK(DRIVER(cuMemcpyHtoAAsync_v2_ptsz)(array, 0, g_first.data(), kBytes, nullptr));
  OK(DRIVER(cuMemcpyAtoHAsync_v2_ptsz)(out.data(), array, 0, kBytes, nullptr));
  Wait();
  EXPECT(out == g_first);
  OK(DRIVER(cuArrayDestroy)(array));
  OK(DRIVER(cuArrayDestroy)(other));
}

void Fills() {
  OK(DRIVER(cuMemsetD8_v2_ptds)(g_a, 1, kBytes));
  EXPECT(Word(g_a) == 0x01010101);
  OK(DRIVER(cuMemsetD16_v2_ptds)(g_a, 2, kBytes / 2));
  EXPECT(Word(g_a) == 0x00020002);
  OK(DRIVER(cuMemsetD32_v2_ptds)(g_a, 3, kBytes / 4));
  EXPECT(Word(g_a) == 3);
  OK(DRIVER(cuMemsetD8Async_ptsz)(g_a, 4, kBytes, nullptr));
  EXPECT(Word(g_a) == 0x04040404);
  OK(DRIVER(cuMemsetD16Async_ptsz)(g_a, 5, kBytes / 2, nullptr));
  EXPECT(Word(g_a) == 0x00050005);
  OK(DRIVER(cuMemsetD32Async_ptsz)(g_a, 6, kBytes / 4, nullptr));
  EXPECT(Word(g_a) == 6);
  OK(DRIVER(cuMemsetD2D8_v2_ptds)(g_a, 256, 7, 16, 4));
  EXPECT(Word(g_a + 256) == 0x07070707 && Word(g_a + 256 + 16) == 6);
  OK(DRIVER(cuMemsetD2D16_v2_ptds)(g_a, 256, 8, 8, 4));
  EXPECT(Word(g_a + 256) == 0x00080008);
  OK(DRIVER(cuMemsetD2D32_v2_ptds)(g_a, 256, 9, 4, 4));
  EXPECT(Word(g_a + 256) == 9);
  OK(DRIVER(cuMemsetD2D8Async_ptsz)(g_a, 256, 10, 16, 4, nullptr));
  EXPECT(Word(g_a + 256) == 0x0a0a0a0a);
  OK(DRIVER(cuMemsetD2D16Async_ptsz)(g_a, 256, 11, 8, 4, nullptr));
  EXPECT(Word(g_a + 256) == 0x000b000b);
  OK(DRIVER(cuMemsetD2D32Async_ptsz)(g_a, 256, 12, 4, 4, nullptr));
  EXPECT(Word(g_a + 256) == 12 && Word(g_a + 256 + 16) == 6);
}

void Pools() {
  CUdeviceptr one = 0, two = 0;
  CUmemoryPool pool = nullptr;
  OK(DRIVER(cuDeviceGetDefaultMemPool)(&pool, 0));
  OK(DRIVER(cuMemAllocAsync_ptsz)(&one, kBytes, nullptr));
  OK(DRIVER(cuMemAllocFromPoolAsync_ptsz)(&two, kBytes, pool, nullptr));
  OK(DRIVER(cuMemsetD8Async_ptsz)(one, 0x77, kBytes, nullptr));
  OK(DRIVER(cuMemcpyAsync_ptsz)(two, one, kBytes, nullptr));
  EXPECT(Word(two) == 0x77777777);
  OK(DRIVER(cuMemFreeAsync_ptsz)(one, nullptr));
  OK(DRIVER(cuMemFreeAsync_ptsz)(two, nullptr));
  Wait();
  CUdeviceptr managed = 0;
  CUmemLocation device{};
  device.type = CU_MEM_LOCATION_TYPE_DEVICE;
  OK(DRIVER(cuMemAllocManaged)(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  // Hints: whether a device takes them is its own affair.
  DRIVER(cuMemPrefetchAsync_ptsz)(managed, kBytes, 0, nullptr);
  DRIVER(cuMemPrefetchAsync_v2_ptsz)(managed, kBytes, device, 0, nullptr);
  DRIVER(cuStreamAttachMemAsync_ptsz)(nullptr, managed, 0, CU_MEM_ATTACH_GLOBAL);
  Wait();
  OK(DRIVER(cuMemFree_v2)(managed));
}

void StreamQueries() {
  unsigned int flags = 77;
  int priority = 7;
  unsigned long long id = 0, legacy_id = 0;
  CUcontext context = nullptr;
  CUgreenCtx green = nullptr;
  CUdevice device = -1;
  OK(DRIVER(cuStreamGetFlags_ptsz)(nullptr, &flags));
  OK(DRIVER(cuStreamGetPriority_ptsz)(nullptr, &priority));
  EXPECT(priority == 0);
  OK(DRIVER(cuStreamGetId_ptsz)(nullptr, &id));
  OK(DRIVER(cuStreamGetId)(CU_STREAM_LEGACY, &legacy_id));
  EXPECT(id != legacy_id);
  OK(DRIVER(cuStreamGetCtx_ptsz)(nullptr, &context));
  EXPECT(context == g_context);
  OK(DRIVER(cuStreamGetCtx_v2_ptsz)(nullptr, &context, &green));
  EXPECT(context == g_context);
  OK(DRIVER(cuStreamGetDevice_ptsz)(nullptr, &device));
  EXPECT(device == 0);
  OK(DRIVER(cuStreamQuery_ptsz)(nullptr));
  CUstream stream = nullptr;
  CUstreamAttrValue value{};
  OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  value.syncPolicy = CU_SYNC_POLICY_SPIN;
  OK(DRIVER(cuStreamSetAttribute_ptsz)(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  value = {};
  OK(DRIVER(cuStreamGetAttribute_ptsz)(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  EXPECT(value.syncPolicy == CU_SYNC_POLICY_SPIN);
  OK(DRIVER(cuStreamCopyAttributes_ptsz)(stream, stream));
  OK(DRIVER(cuStreamDestroy_v2)(stream));
}

std::atomic<int> g_calls{0};

void Work() {
  unsigned addend = 1;
  void* parameters[] = {&g_a, &addend};
  OK(DRIVER(cuMemsetD32Async_ptsz)(g_a, 1, 32, nullptr));
  OK(DRIVER(cuLaunchKernel_ptsz)(g_scale, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));    // 4
  OK(DRIVER(cuLaunchCooperativeKernel_ptsz)(g_scale, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters));  // 13
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  OK(DRIVER(cuLaunchKernelEx_ptsz)(&config, g_scale, parameters, nullptr));  // 40
  CUevent event = nullptr;
  OK(DRIVER(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
  OK(DRIVER(cuEventRecord_ptsz)(event, nullptr));
  OK(DRIVER(cuEventRecordWithFlags_ptsz)(event, nullptr, CU_EVENT_RECORD_DEFAULT));
  OK(DRIVER(cuStreamWaitEvent_ptsz)(nullptr, event, CU_EVENT_WAIT_DEFAULT));
  OK(DRIVER(cuLaunchHostFunc_ptsz)(
      nullptr, [](void*) { ++g_calls; }, nullptr));
  OK(DRIVER(cuStreamAddCallback_ptsz)(
      nullptr, [](CUstream, CUresult, void*) { g_calls += 10; }, nullptr, 0));
  Wait();
  EXPECT(Word(g_a) == 40 && g_calls == 11);
  OK(DRIVER(cuEventDestroy_v2)(event));
  OK(DRIVER(cuStreamWriteValue32_v2_ptsz)(nullptr, g_a, 5, 0));
  OK(DRIVER(cuStreamWaitValue32_v2_ptsz)(nullptr, g_a, 5, CU_STREAM_WAIT_VALUE_EQ));
  OK(DRIVER(cuStreamWriteValue64_v2_ptsz)(nullptr, g_a + 8, 6, 0));
  OK(DRIVER(cuStreamWaitValue64_v2_ptsz)(nullptr, g_a + 8, 6, CU_STREAM_WAIT_VALUE_GEQ));
  int supported = 0;
  OK(DRIVER(cuDeviceGetAttribute)(&supported, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 0));
  if (supported != 0) {
    OK(DRIVER(cuStreamWriteValue32_ptsz)(nullptr, g_a, 7, 0));
    OK(DRIVER(cuStreamWaitValue32_ptsz)(nullptr, g_a, 7, CU_STREAM_WAIT_VALUE_EQ));
    OK(DRIVER(cuStreamWriteValue64_ptsz)(nullptr, g_a + 8, 8, 0));
    OK(DRIVER(cuStreamWaitValue64_ptsz)(nullptr, g_a + 8, 8, CU_STREAM_WAIT_VALUE_EQ));
  }
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = g_a + 16;
  operation.writeValue.value = 9;
  OK(DRIVER(cuStreamBatchMemOp_v2_ptsz)(nullptr, 1, &operation, 0));
  EXPECT(Word(g_a + 16) == 9);
  if (supported != 0) {
    operation.writeValue.value = 10;
    OK(DRIVER(cuStreamBatchMemOp_ptsz)(nullptr, 1, &operation, 0));
    EXPECT(Word(g_a + 16) == 10);
  }
  EXPECT(Word(g_a) == (supported != 0 ? 7u : 5u) && Word(g_a + 8) == (supported != 0 ? 8u : 6u));
}

void Capture() {
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  CUgraph graph = nullptr, same = nullptr;
  const CUgraphNode* dependencies = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  OK(DRIVER(cuStreamBeginCapture_v2_ptsz)(nullptr, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(DRIVER(cuMemsetD32Async_ptsz)(g_a, 21, 32, nullptr));
  OK(DRIVER(cuStreamIsCapturing_ptsz)(nullptr, &status));
  EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(DRIVER(cuStreamGetCaptureInfo_ptsz)(nullptr, &status, &id));
  OK(DRIVER(cuStreamGetCaptureInfo_v2_ptsz)(nullptr, &status, &id, &graph, &dependencies, &count));
  EXPECT(count == 1);
  CUgraphNode node = dependencies[0];
  OK(DRIVER(cuStreamGetCaptureInfo_v3_ptsz)(nullptr, &status, &id, &graph, &dependencies, &edges, &count));
  EXPECT(count == 1 && dependencies[0] == node);
  OK(DRIVER(cuStreamUpdateCaptureDependencies_ptsz)(nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  OK(DRIVER(cuStreamUpdateCaptureDependencies_v2_ptsz)(nullptr, &node, nullptr, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  OK(DRIVER(cuStreamEndCapture_ptsz)(nullptr, &graph));
  OK(DRIVER(cuStreamBeginCaptureToGraph_ptsz)(nullptr, graph, &node, nullptr, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(DRIVER(cuMemsetD32Async_ptsz)(g_a, 22, 16, nullptr));
  OK(DRIVER(cuStreamEndCapture_ptsz)(nullptr, &same));
  EXPECT(same == graph);
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS how{};
  OK(DRIVER(cuGraphInstantiateWithParams_ptsz)(&exec, graph, &how));
  OK(DRIVER(cuGraphUpload_ptsz)(exec, nullptr));
  OK(DRIVER(cuGraphLaunch_ptsz)(exec, nullptr));
  Wait();
  EXPECT(Word(g_a) == 22 && Word(g_a + 64) == 21);
  OK(DRIVER(cuGraphExecDestroy)(exec));
  OK(DRIVER(cuGraphDestroy)(graph));
  OK(DRIVER(cuStreamBeginCapture_ptsz)(nullptr));
  OK(DRIVER(cuStreamEndCapture_ptsz)(nullptr, &graph));
  OK(DRIVER(cuGraphDestroy)(graph));
  FAILS(DRIVER(cuStreamBeginCapture_v2)(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));  // the legacy stream cannot be
}

void Checks() {
  const check::PrimaryContext context;
  g_context = context.get();
  const check::PtxModule module;
  g_scale = module.Function("Scale");
  OK(DRIVER(cuMemAlloc_v2)(&g_a, kBytes));
  OK(DRIVER(cuMemAlloc_v2)(&g_b, kBytes));
  for (size_t i = 0; i < kBytes; ++i) {
    g_first.push_back(static_cast<unsigned char>(i * 5 + 1));
    g_second.push_back(static_cast<unsigned char>(i * 3 + 2));
  }
  LinearCopies();
  ManagedBatches();
  BoxCopies();
  ArrayCopies();
  Fills();
  Pools();
  StreamQueries();
  Work();
  Capture();
  OK(DRIVER(cuMemFree_v2)(g_a));
  OK(DRIVER(cuMemFree_v2)(g_b));
}

}  // namespace

int main(int argc, char** argv) { return check::RunDriverProgram(argc, argv, Checks); }
