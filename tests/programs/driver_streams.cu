// Driver API: streams and their attributes, events, callbacks, memory operations, launches, stream capture.
#include <atomic>

#include "tests/programs/driver_symbols.h"

namespace {

CUcontext g_context;
CUfunction g_nothing, g_scale;

void Streams() {
  CUstream stream = nullptr, urgent = nullptr;
  INVALID(DRIVER(cuStreamCreate)(nullptr, 0));
  INVALID(DRIVER(cuStreamCreate)(&stream, 0x80));
  OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  int least = 0, greatest = 0, priority = 7;
  OK(DRIVER(cuCtxGetStreamPriorityRange)(&least, &greatest));
  OK(DRIVER(cuStreamCreateWithPriority)(&urgent, CU_STREAM_DEFAULT, greatest));
  OK(DRIVER(cuStreamGetPriority)(urgent, &priority));
  EXPECT(priority == greatest);
  OK(DRIVER(cuStreamGetPriority)(stream, &priority));
  EXPECT(priority == 0);
  unsigned int flags = 77;
  OK(DRIVER(cuStreamGetFlags)(stream, &flags));
  EXPECT(flags == CU_STREAM_NON_BLOCKING);
  INVALID(DRIVER(cuStreamGetFlags)(stream, nullptr));
  unsigned long long id = 0, other_id = 0;
  OK(DRIVER(cuStreamGetId)(stream, &id));
  OK(DRIVER(cuStreamGetId)(urgent, &other_id));
  EXPECT(id != other_id);
  CUcontext context = nullptr;
  OK(DRIVER(cuStreamGetCtx)(stream, &context));
  EXPECT(context == g_context);
  CUgreenCtx green = reinterpret_cast<CUgreenCtx>(16);
  OK(DRIVER(cuStreamGetCtx_v2)(stream, &context, &green));
  EXPECT(context == g_context && green == nullptr);
  CUdevice device = -1;
  OK(DRIVER(cuStreamGetDevice)(stream, &device));
  EXPECT(device == 0);
  CUstreamAttrValue value{};
  value.syncPolicy = CU_SYNC_POLICY_YIELD;
  OK(DRIVER(cuStreamSetAttribute)(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  value = {};
  OK(DRIVER(cuStreamGetAttribute)(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  EXPECT(value.syncPolicy == CU_SYNC_POLICY_YIELD);
  OK(DRIVER(cuStreamCopyAttributes)(urgent, stream));
  OK(DRIVER(cuStreamQuery)(stream));
  OK(DRIVER(cuStreamSynchronize)(stream));
  OK(DRIVER(cuStreamDestroy_v2)(stream));
  OK(DRIVER(cuStreamDestroy)(urgent));
  if (check::IsTally()) {
    FAILS(DRIVER(cuStreamSynchronize)(reinterpret_cast<CUstream>(0x5550)));
    FAILS(DRIVER(cuStreamGetFlags)(reinterpret_cast<CUstream>(0x5550), &flags));
  }
}

void Events() {
  CUstream stream = nullptr;
  CUevent first = nullptr, second = nullptr, plain = nullptr;
  OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  INVALID(DRIVER(cuEventCreate)(nullptr, 0));
  OK(DRIVER(cuEventCreate)(&first, CU_EVENT_DEFAULT));
  OK(DRIVER(cuEventCreate)(&second, CU_EVENT_BLOCKING_SYNC));
  OK(DRIVER(cuEventCreate)(&plain, CU_EVENT_DISABLE_TIMING));
  OK(DRIVER(cuEventQuery)(first));  // never recorded: complete
  OK(DRIVER(cuEventRecord)(first, stream));
  OK(DRIVER(cuLaunchKernel)(g_nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  OK(DRIVER(cuEventRecordWithFlags)(second, stream, CU_EVENT_RECORD_DEFAULT));
  OK(DRIVER(cuStreamWaitEvent)(stream, second, CU_EVENT_WAIT_DEFAULT));
  OK(DRIVER(cuEventSynchronize)(second));
  OK(DRIVER(cuEventQuery)(second));
  float old_ms = -1, ms = -1;
  OK(DRIVER(cuEventElapsedTime)(&old_ms, first, second));
  OK(DRIVER(cuEventElapsedTime_v2)(&ms, first, second));
  EXPECT(ms >= 0 && ms == old_ms);
  OK(DRIVER(cuEventRecord)(plain, stream));
  OK(DRIVER(cuEventSynchronize)(plain));
  EXPECT_CODE(CUDA_ERROR_INVALID_HANDLE, DRIVER(cuEventElapsedTime_v2)(&ms, first, plain));
  OK(DRIVER(cuEventDestroy_v2)(first));
  OK(DRIVER(cuEventDestroy_v2)(second));
  OK(DRIVER(cuEventDestroy)(plain));
  OK(DRIVER(cuStreamDestroy_v2)(stream));
}

std::atomic<int> g_calls{0};

void Callbacks() {
  CUstream stream = nullptr;
  OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  OK(DRIVER(cuLaunchHostFunc)(
      stream, [](void* add) { g_calls += *static_cast<int*>(add); }, new int(1)));
  OK(DRIVER(cuStreamAddCallback)(
      stream, [](CUstream, CUresult status, void*) { g_calls += status == CUDA_SUCCESS ? 10 : 100; }, nullptr, 0));
  OK(DRIVER(cuStreamSynchronize)(stream));
  EXPECT(g_calls == 11);
  INVALID(DRIVER(cuLaunchHostFunc)(stream, nullptr, nullptr));
  INVALID(DRIVER(cuStreamAddCallback)(stream, nullptr, nullptr, 0));
  OK(DRIVER(cuStreamDestroy_v2)(stream));
}

// Events of all that a context has been given, and for all that it will be.
void ContextEvents() {
  CUstream first = nullptr, second = nullptr;
  CUevent done = nullptr, gate = nullptr;
  CUdeviceptr memory = 0;
  unsigned addend = 2, word = 0;
  OK(DRIVER(cuStreamCreate)(&first, CU_STREAM_NON_BLOCKING));
  OK(DRIVER(cuStreamCreate)(&second, CU_STREAM_NON_BLOCKING));
  OK(DRIVER(cuEventCreate)(&done, CU_EVENT_DISABLE_TIMING));
  OK(DRIVER(cuEventCreate)(&gate, CU_EVENT_DISABLE_TIMING));
  OK(DRIVER(cuMemAlloc_v2)(&memory, 128));
  void* parameters[] = {&memory, &addend};
  OK(DRIVER(cuMemsetD32Async)(memory, 1, 32, first));
  OK(DRIVER(cuLaunchKernel)(g_scale, 1, 1, 1, 32, 1, 1, 0, first, parameters, nullptr));  // 5
  OK(DRIVER(cuCtxRecordEvent)(g_context, done));
  OK(DRIVER(cuEventSynchronize)(done));
  OK(DRIVER(cuMemcpyDtoH_v2)(&word, memory, 4));
  EXPECT(word == 5);
  OK(DRIVER(cuLaunchKernel)(g_scale, 1, 1, 1, 32, 1, 1, 0, first, parameters, nullptr));  // 17
  OK(DRIVER(cuEventRecord)(gate, first));
  OK(DRIVER(cuCtxWaitEvent)(g_context, gate));
  OK(DRIVER(cuLaunchKernel)(g_scale, 1, 1, 1, 32, 1, 1, 0, second, parameters, nullptr));  // 53
  OK(DRIVER(cuStreamSynchronize)(second));
  OK(DRIVER(cuMemcpyDtoH_v2)(&word, memory, 4));
  EXPECT(word == 53);
  FAILS(DRIVER(cuCtxRecordEvent)(g_context, nullptr));
  FAILS(DRIVER(cuCtxWaitEvent)(g_context, nullptr));
  OK(DRIVER(cuMemFree_v2)(memory));
  OK(DRIVER(cuEventDestroy_v2)(done));
  OK(DRIVER(cuEventDestroy_v2)(gate));
  OK(DRIVER(cuStreamDestroy_v2)(first));
  OK(DRIVER(cuStreamDestroy_v2)(second));
}

void MemoryOperations() {
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_DEFAULT));
  OK(DRIVER(cuMemAlloc_v2)(&memory, 64));
  OK(DRIVER(cuMemsetD8_v2)(memory, 0, 64));
  OK(DRIVER(cuStreamWriteValue32_v2)(stream, memory, 5, 0));
  OK(DRIVER(cuStreamWaitValue32_v2)(stream, memory, 5, CU_STREAM_WAIT_VALUE_GEQ));
  OK(DRIVER(cuStreamWriteValue64_v2)(stream, memory + 8, 6, 0));
  OK(DRIVER(cuStreamWaitValue64_v2)(stream, memory + 8, 6, CU_STREAM_WAIT_VALUE_EQ));
  int supported = 0;
  OK(DRIVER(cuDeviceGetAttribute)(&supported, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 0));
  if (supported != 0) {  // the first version of the interface, switched off on many machines
    OK(DRIVER(cuStreamWriteValue32)(stream, memory + 16, 7, 0));
    OK(DRIVER(cuStreamWaitValue32)(stream, memory + 16, 7, CU_STREAM_WAIT_VALUE_GEQ));
    OK(DRIVER(cuStreamWriteValue64)(stream, memory + 24, 8, 0));
    OK(DRIVER(cuStreamWaitValue64)(stream, memory + 24, 8, CU_STREAM_WAIT_VALUE_GEQ));
    CUstreamBatchMemOpParams operation{};
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.address = memory + 20;
    operation.writeValue.value = 9;
    OK(DRIVER(cuStreamBatchMemOp)(stream, 1, &operation, 0));
  }
  unsigned long long values[4] = {};
  OK(DRIVER(cuStreamSynchronize)(stream));
  OK(DRIVER(cuMemcpyDtoH_v2)(values, memory, 32));
  EXPECT(static_cast<unsigned>(values[0]) == 5 && values[1] == 6);
  EXPECT(supported == 0 || (values[2] == (9ull << 32 | 7) && values[3] == 8));
  OK(DRIVER(cuMemFree_v2)(memory));
  OK(DRIVER(cuStreamDestroy_v2)(stream));
}

void Launches() {
  CUdeviceptr memory = 0;
  unsigned addend = 1;
  OK(DRIVER(cuMemAlloc_v2)(&memory, 128));
  OK(DRIVER(cuMemsetD32_v2)(memory, 1, 32));
  void* parameters[] = {&memory, &addend};
  OK(DRIVER(cuLaunchKernel)(g_scale, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));    // 4
  OK(DRIVER(cuLaunchCooperativeKernel)(g_scale, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters));  // 13
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  OK(DRIVER(cuLaunchKernelEx)(&config, g_scale, parameters, nullptr));  // 40
  struct {
    CUdeviceptr memory;
    unsigned addend;
  } packed = {memory, 2};
  size_t size = 12;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  OK(DRIVER(cuLaunchKernel)(g_scale, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra));  // 122
  unsigned value = 0;
  OK(DRIVER(cuMemcpyDtoH_v2)(&value, memory + 124, 4));
  EXPECT(value == 122);
  INVALID(DRIVER(cuLaunchKernel)(g_scale, 0, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
  FAILS(DRIVER(cuLaunchKernel)(g_scale, 1, 1, 1, 4096, 1, 1, 0, nullptr, parameters, nullptr));
  FAILS(DRIVER(cuLaunchKernel)(nullptr, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
  INVALID(DRIVER(cuLaunchKernelEx)(nullptr, g_scale, parameters, nullptr));
  OK(DRIVER(cuMemFree_v2)(memory));
}

void Capture() {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  OK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  OK(DRIVER(cuStreamIsCapturing)(stream, &status));
  EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(DRIVER(cuThreadExchangeStreamCaptureMode)(&mode));
  EXPECT(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(DRIVER(cuThreadExchangeStreamCaptureMode)(&mode));
  OK(DRIVER(cuStreamBeginCapture)(stream));
  OK(DRIVER(cuLaunchKernel)(g_nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  OK(DRIVER(cuStreamIsCapturing)(stream, &status));
  EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(DRIVER(cuStreamGetCaptureInfo)(stream, &status, &id));
  const CUgraphNode* dependencies = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  cuuint64_t same_id = 0;
  OK(DRIVER(cuStreamGetCaptureInfo_v2)(stream, &status, &same_id, &graph, &dependencies, &count));
  EXPECT(same_id == id && count == 1 && graph != nullptr);
  CUgraphNode last = dependencies[0];
  OK(DRIVER(cuStreamGetCaptureInfo_v3)(stream, &status, &same_id, &graph, &dependencies, &edges, &count));
  EXPECT(same_id == id && count == 1 && dependencies[0] == last);
  OK(DRIVER(cuStreamUpdateCaptureDependencies)(stream, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  OK(DRIVER(cuStreamUpdateCaptureDependencies_v2)(stream, &last, nullptr, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  OK(DRIVER(cuStreamEndCapture)(stream, &graph));
  size_t num_nodes = 0;
  OK(DRIVER(cuGraphGetNodes)(graph, nullptr, &num_nodes));
  EXPECT(num_nodes == 1);
  OK(DRIVER(cuStreamBeginCaptureToGraph)(stream, graph, &last, nullptr, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(DRIVER(cuLaunchKernel)(g_nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  CUgraph same = nullptr;
  OK(DRIVER(cuStreamEndCapture)(stream, &same));
  EXPECT(same == graph);
  OK(DRIVER(cuGraphGetNodes)(graph, nullptr, &num_nodes));
  EXPECT(num_nodes == 2);
  OK(DRIVER(cuGraphDestroy)(graph));
  OK(DRIVER(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(DRIVER(cuStreamEndCapture)(stream, &graph));
  OK(DRIVER(cuGraphDestroy)(graph));
  FAILS(DRIVER(cuStreamEndCapture)(stream, &graph));
  FAILS(DRIVER(cuStreamBeginCapture_v2)(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(DRIVER(cuStreamDestroy_v2)(stream));
}

void Checks() {
  const check::PrimaryContext context;
  g_context = context.get();
  const check::PtxModule module;
  g_nothing = module.Function("Nothing");
  g_scale = module.Function("Scale");
  Streams();
  Events();
  Callbacks();
  ContextEvents();
  MemoryOperations();
  Launches();
  Capture();
}

}  // namespace

int main(int argc, char** argv) { return check::RunDriverProgram(argc, argv, Checks); }
