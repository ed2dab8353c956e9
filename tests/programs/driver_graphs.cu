// Driver API: graphs built node by node, their queries, edits and instances.
#include "tests/programs/driver_symbols.h"

namespace {

CUcontext g_context;
CUfunction g_nothing, g_scale;
CUstream g_stream;
CUdeviceptr g_memory;
int g_host_calls;

unsigned Word() {
  unsigned value = 0;
  OK(DRIVER(cuMemcpyDtoH_v2)(&value, g_memory, 4));
  return value;
}

void Run(CUgraphExec exec) {
  OK(DRIVER(cuGraphLaunch)(exec, g_stream));
  OK(DRIVER(cuStreamSynchronize)(g_stream));
}

CUDA_MEMSET_NODE_PARAMS Fill(unsigned value) {
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = g_memory;
  fill.elementSize = 4;
  fill.value = value;
  fill.width = 32;
  fill.height = 1;
  return fill;
}

CUDA_KERNEL_NODE_PARAMS Scale(void** parameters) {
  CUDA_KERNEL_NODE_PARAMS scale{};
  scale.func = g_scale;
  scale.gridDimX = scale.gridDimY = scale.gridDimZ = 1;
  scale.blockDimX = 32;
  scale.blockDimY = scale.blockDimZ = 1;
  scale.kernelParams = parameters;
  return scale;
}

CUDA_KERNEL_NODE_PARAMS_v1 OldScale(void** parameters) {
  CUDA_KERNEL_NODE_PARAMS_v1 scale{};
  scale.func = g_scale;
  scale.gridDimX = scale.gridDimY = scale.gridDimZ = 1;
  scale.blockDimX = 32;
  scale.blockDimY = scale.blockDimZ = 1;
  scale.kernelParams = parameters;
  return scale;
}

// fill with 2 -> 3 x + 1 = 7 -> copy to the second half -> host function
void Nodes() {
  CUgraph graph = nullptr;
  CUgraphNode fill_node, scale_node, copy_node, host_node, old_node;
  OK(DRIVER(cuGraphCreate)(&graph, 0));
  INVALID(DRIVER(cuGraphCreate)(nullptr, 0));
  CUDA_MEMSET_NODE_PARAMS fill = Fill(2);
  OK(DRIVER(cuGraphAddMemsetNode)(&fill_node, graph, nullptr, 0, &fill, g_context));
  unsigned addend = 1;
  void* parameters[] = {&g_memory, &addend};
  CUDA_KERNEL_NODE_PARAMS scale = Scale(parameters);
  OK(DRIVER(cuGraphAddKernelNode_v2)(&scale_node, graph, &fill_node, 1, &scale));
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = g_memory;
  copy.dstDevice = g_memory + 128;
  copy.WidthInBytes = 128;
  copy.srcPitch = copy.dstPitch = 128;
  copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1;
  OK(DRIVER(cuGraphAddMemcpyNode)(&copy_node, graph, &scale_node, 1, &copy, g_context));
  CUDA_HOST_NODE_PARAMS host{};
  host.fn = [](void*) { ++g_host_calls; };
  OK(DRIVER(cuGraphAddHostNode)(&host_node, graph, &copy_node, 1, &host));
  const CUDA_KERNEL_NODE_PARAMS_v1 old_scale = OldScale(parameters);
  OK(DRIVER(cuGraphAddKernelNode)(&old_node, graph, &host_node, 1, &old_scale));
  OK(DRIVER(cuGraphDestroyNode)(old_node));
  INVALID(DRIVER(cuGraphAddMemsetNode)(nullptr, graph, nullptr, 0, &fill, g_context));

  CUDA_MEMSET_NODE_PARAMS read_fill{};
  CUDA_KERNEL_NODE_PARAMS read_scale{};
  CUDA_KERNEL_NODE_PARAMS_v1 read_old{};
  CUDA_MEMCPY3D read_copy{};
  CUDA_HOST_NODE_PARAMS read_host{};
  OK(DRIVER(cuGraphMemsetNodeGetParams)(fill_node, &read_fill));
  EXPECT(read_fill.value == 2 && read_fill.dst == g_memory);
  OK(DRIVER(cuGraphKernelNodeGetParams_v2)(scale_node, &read_scale));
  EXPECT(read_scale.blockDimX == 32 && *static_cast<unsigned*>(read_scale.kernelParams[1]) == 1);
  OK(DRIVER(cuGraphKernelNodeGetParams)(scale_node, &read_old));
  EXPECT(read_old.blockDimX == 32);
  OK(DRIVER(cuGraphMemcpyNodeGetParams)(copy_node, &read_copy));
  EXPECT(read_copy.dstDevice == g_memory + 128 && read_copy.WidthInBytes == 128);
  OK(DRIVER(cuGraphHostNodeGetParams)(host_node, &read_host));
  EXPECT(read_host.fn == host.fn);
  CUgraphNodeType type;
  OK(DRIVER(cuGraphNodeGetType)(copy_node, &type));
  EXPECT(type == CU_GRAPH_NODE_TYPE_MEMCPY);

  CUgraphExec exec = nullptr;
  OK(DRIVER(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  OK(DRIVER(cuGraphUpload)(exec, g_stream));
  Run(exec);
  EXPECT(Word() == 7 && g_host_calls == 1);
  cuuint64_t flags = 77;
  OK(DRIVER(cuGraphExecGetFlags)(exec, &flags));
  EXPECT(flags == 0);
  // Other parameters: in the instance first, then in the graph.
  fill.value = 3;
  OK(DRIVER(cuGraphExecMemsetNodeSetParams)(exec, fill_node, &fill, g_context));
  addend = 5;
  OK(DRIVER(cuGraphExecKernelNodeSetParams_v2)(exec, scale_node, &scale));
  Run(exec);
  EXPECT(Word() == 14);
  addend = 6;
  OK(DRIVER(cuGraphExecKernelNodeSetParams)(exec, scale_node, &old_scale));
  OK(DRIVER(cuGraphExecMemcpyNodeSetParams)(exec, copy_node, &copy, g_context));
  host.fn = [](void*) { g_host_calls += 10; };
  OK(DRIVER(cuGraphExecHostNodeSetParams)(exec, host_node, &host));
  Run(exec);
  EXPECT(Word() == 15 && g_host_calls == 12);
  unsigned int is_enabled = 0;
  OK(DRIVER(cuGraphNodeSetEnabled)(exec, scale_node, 0));
  OK(DRIVER(cuGraphNodeGetEnabled)(exec, scale_node, &is_enabled));
  EXPECT(is_enabled == 0);
  Run(exec);
  EXPECT(Word() == 3);
  fill.value = 4;
  OK(DRIVER(cuGraphMemsetNodeSetParams)(fill_node, &fill));
  OK(DRIVER(cuGraphKernelNodeSetParams_v2)(scale_node, &scale));
  OK(DRIVER(cuGraphKernelNodeSetParams)(scale_node, &old_scale));
  OK(DRIVER(cuGraphMemcpyNodeSetParams)(copy_node, &copy));
  OK(DRIVER(cuGraphHostNodeSetParams)(host_node, &host));
  CUkernelNodeAttrValue value{};
  value.priority = 0;
  OK(DRIVER(cuGraphKernelNodeSetAttribute)(scale_node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  OK(DRIVER(cuGraphKernelNodeGetAttribute)(scale_node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  EXPECT(value.priority == 0);

  CUgraphExecUpdateResultInfo info{};
  OK(DRIVER(cuGraphExecUpdate_v2)(exec, graph, &info));
  EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  CUgraphNode wrong = nullptr;
  CUgraphExecUpdateResult outcome;
  OK(DRIVER(cuGraphExecUpdate)(exec, graph, &wrong, &outcome));
  EXPECT(outcome == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  OK(DRIVER(cuGraphExecDestroy)(exec));
  OK(DRIVER(cuGraphDestroy)(graph));
}

void Topology() {
  CUgraph graph = nullptr, child = nullptr, clone = nullptr, inside = nullptr;
  CUgraphNode a, b, c, child_node, cloned, second;
  OK(DRIVER(cuGraphCreate)(&graph, 0));
  OK(DRIVER(cuGraphCreate)(&child, 0));
  OK(DRIVER(cuGraphAddEmptyNode)(&a, child, nullptr, 0));
  OK(DRIVER(cuGraphAddEmptyNode)(&a, graph, nullptr, 0));
  OK(DRIVER(cuGraphAddEmptyNode)(&b, graph, &a, 1));
  OK(DRIVER(cuGraphAddEmptyNode)(&c, graph, nullptr, 0));
  OK(DRIVER(cuGraphAddChildGraphNode)(&child_node, graph, &b, 1, child));
  OK(DRIVER(cuGraphChildGraphNodeGetGraph)(child_node, &inside));
  EXPECT(inside != nullptr && inside != child);
  OK(DRIVER(cuGraphAddDependencies)(graph, &b, &c, 1));
  CUgraphNode from[8], to[8], nodes[8];
  CUgraphEdgeData edges[8];
  size_t count = 8;
  OK(DRIVER(cuGraphGetNodes)(graph, nodes, &count));
  EXPECT(count == 4);
  count = 8;
  OK(DRIVER(cuGraphGetRootNodes)(graph, nodes, &count));
  EXPECT(count == 1 && nodes[0] == a);
  count = 8;
  OK(DRIVER(cuGraphGetEdges)(graph, from, to, &count));
  EXPECT(count == 3);
  count = 8;
  OK(DRIVER(cuGraphGetEdges_v2)(graph, from, to, edges, &count));
  EXPECT(count == 3);
  count = 8;
  OK(DRIVER(cuGraphNodeGetDependencies)(c, nodes, &count));
  EXPECT(count == 1 && nodes[0] == b);
  count = 8;
  OK(DRIVER(cuGraphNodeGetDependencies_v2)(c, nodes, edges, &count));
  EXPECT(count == 1 && nodes[0] == b);
  count = 8;
  OK(DRIVER(cuGraphNodeGetDependentNodes)(b, nodes, &count));
  EXPECT(count == 2);
  count = 8;
  OK(DRIVER(cuGraphNodeGetDependentNodes_v2)(b, nodes, edges, &count));
  EXPECT(count == 2);
  OK(DRIVER(cuGraphRemoveDependencies)(graph, &b, &c, 1));
  OK(DRIVER(cuGraphAddDependencies_v2)(graph, &b, &c, nullptr, 1));
  OK(DRIVER(cuGraphRemoveDependencies_v2)(graph, &b, &c, nullptr, 1));
  FAILS(DRIVER(cuGraphRemoveDependencies)(graph, &b, &c, 1));
  INVALID(DRIVER(cuGraphGetNodes)(graph, nodes, nullptr));
  OK(DRIVER(cuGraphClone)(&clone, graph));
  OK(DRIVER(cuGraphNodeFindInClone)(&cloned, b, clone));
  EXPECT(cloned != nullptr && cloned != b);

  CUgraphNodeParams parameters;
  memset(&parameters, 0, sizeof(parameters));
  parameters.type = CU_GRAPH_NODE_TYPE_MEMSET;
  parameters.memset.dst = g_memory;
  parameters.memset.elementSize = 4;
  parameters.memset.value = 9;
  parameters.memset.width = 32;
  parameters.memset.height = 1;
  parameters.memset.ctx = g_context;
  OK(DRIVER(cuGraphAddNode)(&second, graph, &b, 1, &parameters));
  OK(DRIVER(cuGraphAddNode_v2)(&second, graph, &second, nullptr, 1, &parameters));
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS how{};
  OK(DRIVER(cuGraphInstantiateWithParams)(&exec, graph, &how));
  EXPECT(how.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
  Run(exec);
  EXPECT(Word() == 9);
  OK(DRIVER(cuGraphExecChildGraphNodeSetParams)(exec, child_node, child));
  OK(DRIVER(cuGraphExecDestroy)(exec));
  // The older forms.
  CUgraphNode wrong = nullptr;
  char log[256] = {};
  OK(DRIVER(cuGraphInstantiate)(&exec, graph, &wrong, log, sizeof(log)));
  OK(DRIVER(cuGraphExecDestroy)(exec));
  OK(DRIVER(cuGraphInstantiate_v2)(&exec, graph, &wrong, log, sizeof(log)));
  OK(DRIVER(cuGraphExecDestroy)(exec));
  OK(DRIVER(cuGraphDestroy)(clone));
  OK(DRIVER(cuGraphDestroy)(child));
  OK(DRIVER(cuGraphDestroy)(graph));
}

void EventsAndKernels() {
  CUgraph graph = nullptr;
  CUgraphNode record, wait, first, second;
  CUevent event = nullptr, other = nullptr, got = nullptr;
  OK(DRIVER(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
  OK(DRIVER(cuEventCreate)(&other, CU_EVENT_DISABLE_TIMING));
  OK(DRIVER(cuGraphCreate)(&graph, 0));
  OK(DRIVER(cuGraphAddEventRecordNode)(&record, graph, nullptr, 0, event));
  OK(DRIVER(cuGraphAddEventWaitNode)(&wait, graph, &record, 1, event));
  OK(DRIVER(cuGraphEventRecordNodeGetEvent)(record, &got));
  EXPECT(got == event);
  OK(DRIVER(cuGraphEventWaitNodeGetEvent)(wait, &got));
  EXPECT(got == event);
  OK(DRIVER(cuGraphEventRecordNodeSetEvent)(record, other));
  OK(DRIVER(cuGraphEventWaitNodeSetEvent)(wait, other));
  unsigned addend = 1;
  void* parameters[] = {&g_memory, &addend};
  const CUDA_KERNEL_NODE_PARAMS scale = Scale(parameters);
  OK(DRIVER(cuGraphAddKernelNode_v2)(&first, graph, &wait, 1, &scale));
  OK(DRIVER(cuGraphAddKernelNode_v2)(&second, graph, &first, 1, &scale));
  OK(DRIVER(cuGraphKernelNodeCopyAttributes)(second, first));
  CUgraphExec exec = nullptr;
  OK(DRIVER(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  OK(DRIVER(cuGraphExecEventRecordNodeSetEvent)(exec, record, event));
  OK(DRIVER(cuGraphExecEventWaitNodeSetEvent)(exec, wait, event));
  OK(DRIVER(cuMemsetD32_v2)(g_memory, 1, 32));
  OK(DRIVER(cuCtxSynchronize)());
  Run(exec);
  EXPECT(Word() == 13);
  OK(DRIVER(cuEventSynchronize)(event));
  OK(DRIVER(cuGraphExecDestroy)(exec));
  OK(DRIVER(cuGraphDestroy)(graph));
  OK(DRIVER(cuEventDestroy_v2)(event));
  OK(DRIVER(cuEventDestroy_v2)(other));
  cuuint64_t bytes = 77;
  OK(DRIVER(cuDeviceGetGraphMemAttribute)(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes));
  EXPECT(bytes == 0);
  OK(DRIVER(cuDeviceGraphMemTrim)(0));
  // Not on the software GPU.
  CUgraphConditionalHandle conditional = 0;
  OK(DRIVER(cuGraphCreate)(&graph, 0));
  INVALID(DRIVER(cuGraphConditionalHandleCreate)(nullptr, graph, g_context, 0, 0));
  DRIVER(cuGraphConditionalHandleCreate)(&conditional, graph, g_context, 0, 0);
  OK(DRIVER(cuGraphDestroy)(graph));
  if (check::IsTally()) {
    const auto nonsense = reinterpret_cast<CUgraph>(0x9990);
    size_t count = 0;
    FAILS(DRIVER(cuGraphGetNodes)(nonsense, nullptr, &count));
    FAILS(DRIVER(cuGraphInstantiateWithFlags)(&exec, nonsense, 0));
    FAILS(DRIVER(cuGraphNodeGetType)(reinterpret_cast<CUgraphNode>(0x9990), nullptr));
  }
}

void Checks() {
  const check::PrimaryContext context;
  g_context = context.get();
  const check::PtxModule module;
  g_nothing = module.Function("Nothing");
  g_scale = module.Function("Scale");
  OK(DRIVER(cuStreamCreate)(&g_stream, CU_STREAM_NON_BLOCKING));
  OK(DRIVER(cuMemAlloc_v2)(&g_memory, 256));
  Nodes();
  Topology();
  EventsAndKernels();
  OK(DRIVER(cuMemFree_v2)(g_memory));
  OK(DRIVER(cuStreamDestroy_v2)(g_stream));
}

}  // namespace

int main(int argc, char** argv) { return check::RunDriverProgram(argc, argv, Checks); }
