#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

class GraphTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_OK(cuGraphCreate(&graph_, 0));
  }
  // Node of `fill(out, value, 1)` or another kernel with the same parameters.
  CUgraphNode Fill(CUdeviceptr out, uint32_t value, std::vector<CUgraphNode> after = {}) {
    uint32_t n = 1;
    void* pointers[] = {&out, &value, &n};
    CUDA_KERNEL_NODE_PARAMS params = Params("fill", pointers);
    CUgraphNode node = nullptr;
    EXPECT_OK(cuGraphAddKernelNode_v2(&node, graph_, after.data(), after.size(), &params));
    return node;
  }
  CUgraphNode Increment(CUdeviceptr out, std::vector<CUgraphNode> after = {}) {
    uint32_t n = 1;
    void* pointers[] = {&out, &n};
    CUDA_KERNEL_NODE_PARAMS params = Params("increment", pointers);
    CUgraphNode node = nullptr;
    EXPECT_OK(cuGraphAddKernelNode_v2(&node, graph_, after.data(), after.size(), &params));
    return node;
  }
  // Then *out = 1.
  CUgraphNode WaitForFlag(const uint32_t* flag, const uint32_t* out) {
    CUdeviceptr flag_address = Address(flag), out_address = Address(out);
    uint32_t value = 1;
    void* pointers[] = {&flag_address, &out_address, &value};
    CUDA_KERNEL_NODE_PARAMS params = Params("wait_for_flag", pointers);
    CUgraphNode node = nullptr;
    EXPECT_OK(cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &params));
    return node;
  }
  CUDA_KERNEL_NODE_PARAMS Params(const char* kernel, void** pointers) {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = Kernel(kernel);
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = pointers;
    return params;
  }
  CUgraphExec Instantiate() {
    CUgraphExec exec = nullptr;
    EXPECT_OK(cuGraphInstantiateWithFlags(&exec, graph_, 0));
    return exec;
  }
  void Run(CUgraphExec exec) {
    EXPECT_OK(cuGraphLaunch(exec, nullptr));
    EXPECT_OK(cuCtxSynchronize());
  }
  CUgraph graph_ = nullptr;
};

TEST_F(GraphTest, BuiltByHand) {
  const CUdeviceptr a = Allocate(4), b = Allocate(4);
  uint32_t result = 0;
  const CUgraphNode fill = Fill(a, 10);
  const CUgraphNode increment = Increment(a, {fill});
  CUDA_MEMSET_NODE_PARAMS set{};
  set.dst = b;
  set.value = 5;
  set.elementSize = 4;
  set.width = 1;
  set.height = 1;
  CUgraphNode memset = nullptr, copy = nullptr, host = nullptr;
  ASSERT_OK(cuGraphAddMemsetNode(&memset, graph_, nullptr, 0, &set, context_));
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = a;
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = &result;
  box.WidthInBytes = 4;
  box.Height = box.Depth = 1;
  ASSERT_OK(cuGraphAddMemcpyNode(&copy, graph_, &increment, 1, &box, context_));
  std::atomic<uint32_t> seen{0};
  struct Look {
    uint32_t* result;
    std::atomic<uint32_t>* seen;
  } look{&result, &seen};
  const CUDA_HOST_NODE_PARAMS call{[](void* argument) {
                                     const auto* const one = static_cast<Look*>(argument);
                                     one->seen->store(*one->result);
                                   },
                                   &look};
  const CUgraphNode both[] = {copy, memset};
  ASSERT_OK(cuGraphAddHostNode(&host, graph_, both, 2, &call));
  Run(Instantiate());
  EXPECT_EQ(11U, result);
  EXPECT_EQ(11U, seen.load());
  EXPECT_EQ(5U, Read(b, 1)[0]);

  CUgraphNodeType type{};
  EXPECT_OK(cuGraphNodeGetType(copy, &type));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_MEMCPY, type);
  CUDA_KERNEL_NODE_PARAMS params{};
  EXPECT_OK(cuGraphKernelNodeGetParams_v2(fill, &params));
  EXPECT_EQ(10U, *static_cast<uint32_t*>(params.kernelParams[1]));
  EXPECT_EQ(Kernel("fill"), params.func);
}

TEST_F(GraphTest, EdgesCanBeReadAndChanged) {
  const CUdeviceptr a = Allocate(4);
  const CUgraphNode first = Fill(a, 1), second = Fill(a, 2), third = Fill(a, 3, {first});
  size_t count = 0;
  EXPECT_OK(cuGraphGetNodes(graph_, nullptr, &count));
  EXPECT_EQ(3U, count);
  CUgraphNode nodes[5] = {first, first, first, first, first};
  count = 5;
  EXPECT_OK(cuGraphGetNodes(graph_, nodes, &count));
  EXPECT_EQ(3U, count);
  EXPECT_EQ(nullptr, nodes[4]);
  EXPECT_OK(cuGraphAddDependencies(graph_, &second, &third, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph_, &second, &third, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph_, &third, &first, 1));  // a circle
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph_, &third, &third, 1));
  count = 4;
  CUgraphNode from[4], to[4];
  EXPECT_OK(cuGraphGetEdges(graph_, from, to, &count));
  EXPECT_EQ(2U, count);
  EXPECT_OK(cuGraphNodeGetDependencies(third, nullptr, &count));
  EXPECT_EQ(2U, count);
  EXPECT_OK(cuGraphNodeGetDependentNodes(first, nullptr, &count));
  EXPECT_EQ(1U, count);
  EXPECT_OK(cuGraphRemoveDependencies(graph_, &second, &third, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph_, &second, &third, 1));
  EXPECT_OK(cuGraphDestroyNode(third));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(third));
  EXPECT_OK(cuGraphGetNodes(graph_, nullptr, &count));
  EXPECT_EQ(2U, count);
  EXPECT_OK(cuGraphDestroy(graph_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(first));
}

TEST_F(GraphTest, IndependentNodesOverlap) {
  // Each waits for what the other writes.
  uint32_t* const flags = NewFlags();
  for (int i = 0; i < 2; ++i) WaitForFlag(&flags[i], &flags[i + 1]);
  const CUstream stream = NewStream();
  EXPECT_OK(cuGraphLaunch(Instantiate(), stream));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  Raise(flags);
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(1U, flags[2]);
}

TEST_F(GraphTest, LaunchesOfOneGraphDoNotOverlap) {
  const CUdeviceptr a = Allocate(4);
  EXPECT_OK(cuMemsetD32_v2(a, 0, 1));
  EXPECT_OK(cuCtxSynchronize());
  Increment(a);
  const CUgraphExec exec = Instantiate();
  const CUstream streams[] = {NewStream(), NewStream(), NewStream()};
  for (int i = 0; i < 300; ++i) EXPECT_OK(cuGraphLaunch(exec, streams[i % 3]));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(300U, Read(a, 1)[0]);
}

TEST_F(GraphTest, ExecNodesCanBeChanged) {
  const CUdeviceptr a = Allocate(4), b = Allocate(4);
  const CUgraphNode node = Fill(a, 1);
  const CUgraphExec exec = Instantiate();
  CUdeviceptr out = b;
  uint32_t value = 2, n = 1;
  void* pointers[] = {&out, &value, &n};
  const CUDA_KERNEL_NODE_PARAMS params = Params("fill", pointers);
  EXPECT_OK(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
  EXPECT_OK(cuMemsetD32_v2(a, 9, 1));
  Run(exec);
  EXPECT_EQ(9U, Read(a, 1)[0]);
  EXPECT_EQ(2U, Read(b, 1)[0]);
  const CUDA_HOST_NODE_PARAMS host{[](void*) {}, nullptr};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphExecHostNodeSetParams(exec, node, &host));
  unsigned enabled = 7;
  EXPECT_OK(cuGraphNodeSetEnabled(exec, node, 0));
  EXPECT_OK(cuGraphNodeGetEnabled(exec, node, &enabled));
  EXPECT_EQ(0U, enabled);
  EXPECT_OK(cuMemsetD32_v2(b, 9, 1));
  Run(exec);
  EXPECT_EQ(9U, Read(b, 1)[0]);
  EXPECT_OK(cuGraphExecDestroy(exec));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, nullptr));
}

TEST_F(GraphTest, Update) {
  const CUdeviceptr a = Allocate(4);
  Increment(a, {Fill(a, 1)});
  const CUgraphExec exec = Instantiate();
  CUgraph other = nullptr;
  ASSERT_OK(cuGraphCreate(&other, 0));
  std::swap(graph_, other);
  const CUgraphNode fill = Fill(a, 50);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_EQ(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, graph_, &info));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info.result);
  const CUgraphNode increment = Increment(a);
  EXPECT_EQ(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, graph_, &info));
  EXPECT_OK(cuGraphAddDependencies(graph_, &fill, &increment, 1));
  EXPECT_OK(cuGraphExecUpdate_v2(exec, graph_, &info));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_SUCCESS, info.result);
  Run(exec);
  EXPECT_EQ(51U, Read(a, 1)[0]);
}

TEST_F(GraphTest, ChildGraphsAndClones) {
  const CUdeviceptr a = Allocate(4);
  const CUgraphNode inner = Increment(a, {Increment(a)});
  CUgraph child = graph_;
  CUgraph clone = nullptr;
  ASSERT_OK(cuGraphClone(&clone, child));
  CUgraphNode twin = nullptr;
  EXPECT_OK(cuGraphNodeFindInClone(&twin, inner, clone));
  EXPECT_NE(inner, twin);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&twin, inner, child));

  ASSERT_OK(cuGraphCreate(&graph_, 0));
  const CUgraphNode before = Fill(a, 10);
  CUgraphNode node = nullptr;
  ASSERT_OK(cuGraphAddChildGraphNode(&node, graph_, &before, 1, child));
  EXPECT_OK(cuGraphDestroy(child));  // it was copied
  CUgraph owned = nullptr;
  EXPECT_OK(cuGraphChildGraphNodeGetGraph(node, &owned));
  size_t count = 0;
  EXPECT_OK(cuGraphGetNodes(owned, nullptr, &count));
  EXPECT_EQ(2U, count);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(owned));
  Increment(a, {node});
  const CUgraphExec exec = Instantiate();
  Run(exec);
  EXPECT_EQ(13U, Read(a, 1)[0]);
  // A child of the same shape that works on another word.
  const CUdeviceptr b = Allocate(4);
  EXPECT_OK(cuMemsetD32_v2(b, 0, 1));
  CUgraph main = graph_, replacement = nullptr;
  ASSERT_OK(cuGraphCreate(&replacement, 0));
  graph_ = replacement;
  Increment(b, {Increment(b)});
  EXPECT_OK(cuGraphExecChildGraphNodeSetParams(exec, node, replacement));
  Run(exec);
  EXPECT_EQ(11U, Read(a, 1)[0]);
  EXPECT_EQ(2U, Read(b, 1)[0]);
  // The whole again, with its child.
  CUgraphExecUpdateResultInfo info{};
  EXPECT_OK(cuGraphExecUpdate_v2(exec, main, &info));
  Run(exec);
  EXPECT_EQ(13U, Read(a, 1)[0]);
}

TEST_F(GraphTest, WhatIsBehindAChildGraphWaitsForAllOfIt) {
  uint32_t* const flags = NewFlags();
  WaitForFlag(&flags[0], &flags[1]);
  Increment(Address(&flags[2]));
  CUgraph child = graph_;
  ASSERT_OK(cuGraphCreate(&graph_, 0));
  CUgraphNode node = nullptr;
  ASSERT_OK(cuGraphAddChildGraphNode(&node, graph_, nullptr, 0, child));
  EXPECT_OK(cuGraphDestroy(child));
  Increment(Address(&flags[3]), {node});
  const CUstream stream = NewStream();
  EXPECT_OK(cuGraphLaunch(Instantiate(), stream));
  while (Peek(&flags[2]) == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(0U, Peek(&flags[3]));
  Raise(flags);
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(1U, Peek(&flags[3]));
}

TEST_F(GraphTest, ChildGraphsThatMove) {
  const CUdeviceptr a = Allocate(4);
  const CUgraph parent = graph_;
  const CUgraphNode before = Fill(a, 10);
  // A graph in a graph, the inner one with memory of its own.
  const auto move = [](CUgraph into, std::vector<CUgraphNode> after, CUgraph child, CUgraphNode* node) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph = {child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
    const CUresult result = cuGraphAddNode_v2(node, into, after.data(), nullptr, after.size(), &params);
    EXPECT_EQ(child, params.graph.graph);
    return result;
  };
  CUgraph child = nullptr, inner = nullptr;
  ASSERT_OK(cuGraphCreate(&child, 0));
  ASSERT_OK(cuGraphCreate(&inner, 0));
  graph_ = inner;
  CUDA_MEM_ALLOC_NODE_PARAMS memory{};
  memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  memory.bytesize = 1 << 20;
  CUgraphNode alloc = nullptr, release = nullptr;
  ASSERT_OK(cuGraphAddMemAllocNode(&alloc, inner, nullptr, 0, &memory));
  const CUgraphNode increment = Increment(a, {Fill(memory.dptr, 3, {alloc})});
  ASSERT_OK(cuGraphAddMemFreeNode(&release, inner, &increment, 1, memory.dptr));
  CUgraphNode inner_node = nullptr, child_node = nullptr, none = nullptr;
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode(&none, child, nullptr, 0, inner));  // it allocates
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, move(child, {before}, inner, &none));  // a dependency elsewhere: nothing moved
  ASSERT_OK(move(child, {}, inner, &inner_node));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, move(inner, {}, child, &none));  // into itself, by a detour
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, move(child, {}, child, &none));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, move(parent, {}, inner, &none));  // twice
  ASSERT_OK(move(parent, {before}, child, &child_node));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(child));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphAddChildGraphNode(&none, parent, nullptr, 0, child));
  CUgraphExec exec = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, child, 0));
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddMemAllocNode(&none, child, nullptr, 0, &memory));
  CUgraph named = nullptr;
  EXPECT_OK(cuGraphChildGraphNodeGetGraph(child_node, &named));
  EXPECT_EQ(child, named);
  ASSERT_OK(cuGraphInstantiateWithFlags(&exec, parent, 0));
  Run(exec);
  EXPECT_EQ(11U, Read(a, 1)[0]);
  // A node of the inner graph keeps its name, in the graph and in the executable.
  uint32_t n = 1;
  CUdeviceptr b = Allocate(4);
  ASSERT_OK(cuMemsetD32_v2(b, 0, 1));
  void* pointers[] = {&b, &n};
  const CUDA_KERNEL_NODE_PARAMS params = Params("increment", pointers);
  EXPECT_OK(cuGraphExecKernelNodeSetParams_v2(exec, increment, &params));
  Run(exec);
  EXPECT_EQ(10U, Read(a, 1)[0]);
  EXPECT_EQ(1U, Read(b, 1)[0]);
  EXPECT_OK(cuGraphDestroy(parent));
  CUgraphNodeType type{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(increment, &type));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(inner));
  Run(exec);
  EXPECT_EQ(2U, Read(b, 1)[0]);
}

TEST_F(GraphTest, EventNodesAndGenericNodes) {
  const CUevent recorded = NewEvent(), awaited = NewEvent();
  uint32_t* const flags = NewFlags();
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  params.eventWait.event = awaited;
  CUgraphNode wait = nullptr, record = nullptr;
  ASSERT_OK(cuGraphAddNode_v2(&wait, graph_, nullptr, nullptr, 0, &params));
  ASSERT_OK(cuGraphAddEventRecordNode(&record, graph_, &wait, 1, recorded));
  CUevent named = nullptr;
  EXPECT_OK(cuGraphEventRecordNodeGetEvent(record, &named));
  EXPECT_EQ(recorded, named);
  ASSERT_OK(Launch("wait_for_flag", 1, 1, NewStream(), Address(flags), Address(&flags[1]), 1U));
  const CUstream busy = NewStream();
  ASSERT_OK(Launch("wait_for_flag", 1, 1, busy, Address(flags), Address(&flags[1]), 1U));
  EXPECT_OK(cuEventRecord(awaited, busy));
  EXPECT_OK(cuGraphLaunch(Instantiate(), NewStream()));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(recorded));
  Raise(flags);
  EXPECT_OK(cuEventSynchronize(recorded));
  params = {};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode_v2(&wait, graph_, nullptr, nullptr, 0, &params));
}

TEST_F(GraphTest, MemoryNodes) {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  params.bytesize = 1 << 20;
  CUgraphNode alloc = nullptr, release = nullptr;
  ASSERT_OK(cuGraphAddMemAllocNode(&alloc, graph_, nullptr, 0, &params));
  ASSERT_NE(0U, params.dptr);
  uint64_t used = 0;
  EXPECT_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(uint64_t{1} << 20, used);
  const CUgraphNode fill = Fill(params.dptr, 3, {alloc});
  ASSERT_OK(cuGraphAddMemFreeNode(&release, graph_, &fill, 1, params.dptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&release, graph_, &fill, 1, Allocate(4)));
  const CUgraphExec exec = Instantiate();
  Run(exec);
  Run(exec);
  EXPECT_OK(cuGraphExecDestroy(exec));
  EXPECT_OK(cuGraphDestroy(graph_));
  EXPECT_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(0U, used);
}

TEST_F(GraphTest, UserObjectsLiveAsLongAsTheirGraphs) {
  static std::atomic<int> destroyed{0};
  destroyed = 0;
  CUuserObject object = nullptr;
  ASSERT_OK(cuUserObjectCreate(
      &object, nullptr, [](void*) { ++destroyed; }, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  EXPECT_OK(cuGraphRetainUserObject(graph_, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CUgraphNode node = nullptr;
  ASSERT_OK(cuGraphAddEmptyNode(&node, graph_, nullptr, 0));
  const CUgraphExec exec = Instantiate();
  EXPECT_OK(cuGraphDestroy(graph_));
  Run(exec);
  EXPECT_EQ(0, destroyed.load());
  EXPECT_OK(cuGraphExecDestroy(exec));
  while (destroyed.load() == 0) std::this_thread::yield();  // on another thread; CTest's time limit is the watchdog
  EXPECT_EQ(1, destroyed.load());
}

TEST_F(GraphTest, FaultInsideAGraph) {
  const CUdeviceptr a = Allocate(4);
  Fill(a + 4096, 1);
  const CUgraphExec exec = Instantiate();
  EXPECT_OK(cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuGraphLaunch(exec, nullptr));
}

}  // namespace
}  // namespace tally::sim_driver
