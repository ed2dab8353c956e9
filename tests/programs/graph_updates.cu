// Changing graphs: any kind of node through cudaGraphNodeSetParams and cudaGraphExecNodeSetParams, nodes switched off,
// memory operations, clones, user objects, kernel attributes, the picture for Graphviz.
#include <cuda.h>
#include <unistd.h>

#include <atomic>

#include "tests/programs/driver_entry.h"

using check::Results;

namespace {

void Reference(Results& results) {
  results.Add("set in the executable", std::vector<uint32_t>{5, 9, 1});
  results.Add("set in the graph", std::vector<uint32_t>{11, 13, 2});
  results.Add("switched off", std::vector<uint32_t>{0, 13, 1});
  results.Add("memory operations", std::vector<uint32_t>{1, 77, 2, 88, 77});
  results.Add("other memory operations", std::vector<uint32_t>{89, 90});
  results.Add("clone", std::vector<uint32_t>{4, 1});
  results.Add("user objects", std::vector<uint32_t>{0, 0, 1});
  results.Add("attributes", std::vector<uint32_t>{1, 1});
  results.AddValue<uint32_t>("picture", 1);
}

__global__ void Store(uint32_t* out, uint32_t value) { *out = value; }

void CUDART_CB Increment(void* argument) { ++*static_cast<std::atomic<uint32_t>*>(argument); }

struct Parts {
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t kernel = nullptr, fill = nullptr, host = nullptr, operations = nullptr;
};

cudaGraphNodeParams KernelParams(uint32_t** out, uint32_t* value, void** arguments) {
  arguments[0] = out;
  arguments[1] = value;
  cudaGraphNodeParams p = {};
  p.type = cudaGraphNodeTypeKernel;
  p.kernel.func = reinterpret_cast<void*>(Store);
  p.kernel.gridDim = 1;
  p.kernel.blockDim = 1;
  p.kernel.kernelParams = arguments;
  return p;
}
cudaGraphNodeParams FillParams(uint32_t* out, uint32_t value) {
  cudaGraphNodeParams p = {};
  p.type = cudaGraphNodeTypeMemset;
  p.memset.dst = out;
  p.memset.elementSize = 4;
  p.memset.value = value;
  p.memset.width = 1;
  p.memset.height = 1;
  return p;
}
cudaGraphNodeParams HostParams(std::atomic<uint32_t>* counter) {
  cudaGraphNodeParams p = {};
  p.type = cudaGraphNodeTypeHost;
  p.host.fn = Increment;
  p.host.userData = counter;
  return p;
}

const CUDA_BATCH_MEM_OP_NODE_PARAMS* WithValue(CUDA_BATCH_MEM_OP_NODE_PARAMS* p, uint32_t value) {
  p->paramArray[0].writeValue.value = value;
  return p;
}

void Device(Results& results) {
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  check::DeviceBuffer<uint32_t> words(8);
  words.Zero();
  std::atomic<uint32_t> calls{0}, other_calls{0}, destroyed{0};

  Parts parts;
  CHECK_CUDA(cudaGraphCreate(&parts.graph, 0));
  uint32_t* first = words.get();
  uint32_t value = 3;
  void* arguments[2];
  cudaGraphNodeParams kernel = KernelParams(&first, &value, arguments), fill = FillParams(words.get() + 1, 8),
                      host = HostParams(&calls);
  CHECK_CUDA(cudaGraphAddNode(&parts.kernel, parts.graph, nullptr, nullptr, 0, &kernel));
  CHECK_CUDA(cudaGraphAddNode(&parts.fill, parts.graph, &parts.kernel, nullptr, 1, &fill));
  CHECK_CUDA(cudaGraphAddNode(&parts.host, parts.graph, &parts.fill, nullptr, 1, &host));
  cudaGraphExec_t executable;
  CHECK_CUDA(cudaGraphInstantiate(&executable, parts.graph, 0));
  auto run = [&](const char* name, cudaGraphExec_t exec, std::atomic<uint32_t>& counter) {
    CHECK_CUDA(cudaMemsetAsync(words.get(), 0, 4, stream));
    uint32_t before = counter;
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    std::vector<uint32_t> got = words.Download();
    results.Add(name, std::vector<uint32_t>{got[0], got[1], counter - before + (&counter == &other_calls ? 1 : 0)});
  };
  value = 5;
  kernel = KernelParams(&first, &value, arguments);
  fill = FillParams(words.get() + 1, 9);
  CHECK_CUDA(cudaGraphExecNodeSetParams(executable, parts.kernel, &kernel));
  CHECK_CUDA(cudaGraphExecNodeSetParams(executable, parts.fill, &fill));
  run("set in the executable", executable, calls);
  value = 11;
  kernel = KernelParams(&first, &value, arguments);
  fill = FillParams(words.get() + 1, 13);
  host = HostParams(&other_calls);
  CHECK_CUDA(cudaGraphNodeSetParams(parts.kernel, &kernel));
  CHECK_CUDA(cudaGraphNodeSetParams(parts.fill, &fill));
  CHECK_CUDA(cudaGraphNodeSetParams(parts.host, &host));
  cudaGraphExecUpdateResultInfo update;
  CHECK_CUDA(cudaGraphExecUpdate(executable, parts.graph, &update));
  run("set in the graph", executable, other_calls);
  CHECK_CUDA(cudaGraphNodeSetEnabled(executable, parts.kernel, 0));
  CHECK_CUDA(cudaGraphExecNodeSetParams(executable, parts.host, &host));
  host = HostParams(&calls);
  CHECK_CUDA(cudaGraphExecNodeSetParams(executable, parts.host, &host));
  run("switched off", executable, calls);
  CHECK_CUDA(cudaGraphExecDestroy(executable));

  // Memory operations: on a stream, then as a node.
  auto batch = DRIVER_ENTRY_OF(cuStreamBatchMemOp_v2, "cuStreamBatchMemOp", 12000);
  auto add_batch = DRIVER_ENTRY(cuGraphAddBatchMemOpNode);
  auto get_batch = DRIVER_ENTRY(cuGraphBatchMemOpNodeGetParams);
  CUstreamBatchMemOpParams operations[2] = {};
  operations[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operations[0].writeValue.address = reinterpret_cast<CUdeviceptr>(words.get() + 2);
  operations[0].writeValue.value = 77;
  operations[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operations[1].waitValue.address = operations[0].writeValue.address;
  operations[1].waitValue.value = 70;
  operations[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  CHECK_DRIVER(batch(stream, 2, operations, 0));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  uint32_t on_stream = words.Download()[2];
  operations[0].writeValue.address = reinterpret_cast<CUdeviceptr>(words.get() + 3);
  operations[0].writeValue.value = 88;
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch_params = {};
  CUcontext context;
  CHECK_DRIVER(DRIVER_ENTRY(cuCtxGetCurrent)(&context));
  batch_params.ctx = context;
  batch_params.count = 2;
  batch_params.paramArray = operations;
  CUgraph batch_graph;
  CHECK_DRIVER(DRIVER_ENTRY(cuGraphCreate)(&batch_graph, 0));
  CHECK_DRIVER(add_batch(&parts.operations, batch_graph, nullptr, 0, &batch_params));
  CUDA_BATCH_MEM_OP_NODE_PARAMS said = {};
  CHECK_DRIVER(get_batch(parts.operations, &said));
  CHECK_CUDA(cudaGraphInstantiate(&executable, batch_graph, 0));
  CHECK_CUDA(cudaGraphLaunch(executable, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  std::vector<uint32_t> got = words.Download();
  CUstreamBatchMemOpParams foreign = operations[0];
  foreign.writeValue.address = 0x1000;
  if (batch(stream, 1, &foreign, 0) == CUDA_SUCCESS) check::Fail("a write to nobody's memory was accepted");
  results.Add("memory operations", std::vector<uint32_t>{1, on_stream, said.count, got[3], got[2]});
  // Other values: in the executable, then in the graph.
  CHECK_DRIVER(DRIVER_ENTRY(cuGraphExecBatchMemOpNodeSetParams)(reinterpret_cast<CUgraphExec>(executable),
                                                                parts.operations, WithValue(&batch_params, 89)));
  CHECK_CUDA(cudaGraphLaunch(executable, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  std::vector<uint32_t> changed = {words.Download()[3]};
  CHECK_CUDA(cudaGraphExecDestroy(executable));
  CHECK_DRIVER(DRIVER_ENTRY(cuGraphBatchMemOpNodeSetParams)(parts.operations, WithValue(&batch_params, 90)));
  CHECK_CUDA(cudaGraphInstantiate(&executable, batch_graph, 0));
  CHECK_CUDA(cudaGraphLaunch(executable, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  changed.push_back(words.Download()[3]);
  results.Add("other memory operations", changed);
  CHECK_CUDA(cudaGraphExecDestroy(executable));
  CHECK_CUDA(cudaGraphDestroy(batch_graph));

  cudaGraph_t clone;
  CHECK_CUDA(cudaGraphClone(&clone, parts.graph));
  cudaGraphNode_t in_clone;
  CHECK_CUDA(cudaGraphNodeFindInClone(&in_clone, parts.fill, clone));
  fill = FillParams(words.get() + 1, 4);
  CHECK_CUDA(cudaGraphNodeSetParams(in_clone, &fill));
  CHECK_CUDA(cudaGraphInstantiate(&executable, clone, 0));
  uint32_t before = other_calls;
  CHECK_CUDA(cudaGraphLaunch(executable, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("clone", std::vector<uint32_t>{words.Download()[1], other_calls - before});
  CHECK_CUDA(cudaGraphExecDestroy(executable));
  CHECK_CUDA(cudaGraphDestroy(clone));

  // A user object lives until its last reference is gone: the program's, then the graph's.
  cudaUserObject_t object;
  CHECK_CUDA(cudaUserObjectCreate(&object, &destroyed, Increment, 1, cudaUserObjectNoDestructorSync));
  CHECK_CUDA(cudaUserObjectRetain(object, 1));
  CHECK_CUDA(cudaGraphRetainUserObject(parts.graph, object, 1, cudaGraphUserObjectMove));
  CHECK_CUDA(cudaGraphRetainUserObject(parts.graph, object, 1, 0));
  CHECK_CUDA(cudaGraphReleaseUserObject(parts.graph, object, 1));
  uint32_t at_first = destroyed;
  CHECK_CUDA(cudaUserObjectRelease(object, 1));
  usleep(20000);
  uint32_t then = destroyed;

  cudaLaunchAttributeValue priority = {};
  priority.priority = -1;
  CHECK_CUDA(cudaGraphKernelNodeSetAttribute(parts.kernel, cudaLaunchAttributePriority, &priority));
  priority = {};
  CHECK_CUDA(cudaGraphKernelNodeGetAttribute(parts.kernel, cudaLaunchAttributePriority, &priority));
  cudaLaunchAttributeValue cooperative = {};
  CHECK_CUDA(cudaGraphKernelNodeGetAttribute(parts.kernel, cudaLaunchAttributeCooperative, &cooperative));

  char path[] = "/tmp/tally_graph_XXXXXX";
  int file = mkstemp(path);
  CHECK_CUDA(cudaGraphDebugDotPrint(parts.graph, path, 0));
  char begin[8] = {};
  bool is_picture = read(file, begin, 7) == 7 && memcmp(begin, "digraph", 7) == 0;
  close(file);
  unlink(path);

  CHECK_CUDA(cudaGraphDestroy(parts.graph));
  for (int i = 0; i < 20'000 && destroyed == 0; ++i) usleep(1000);
  results.Add("user objects", std::vector<uint32_t>{at_first, then, destroyed});
  results.Add("attributes", std::vector<uint32_t>{priority.priority == -1, cooperative.cooperative == 0});
  results.AddValue<uint32_t>("picture", is_picture);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
