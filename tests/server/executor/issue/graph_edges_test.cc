#include "server/executor/issue/graph_edges.h"

#include <random>

#include "tests/server/executor/issue/graph_edges_fixture.h"

namespace tally::server {
namespace {

TEST_F(GraphEdgesTest, FalseEdgesGoAndTheProgramsGraphStays) {
  const CUgraphNode a = Add({0, 1}), b = Add({2, 3}), c = Add({4, 0}), d = Add({5, 2});
  ASSERT_NE(Clone(), nullptr);
  EXPECT_EQ(EdgesOfClone(), (Edges{{a, c}, {b, d}}));
  EXPECT_EQ(EdgesOf(graph_), (Edges{{a, b}, {b, c}, {c, d}}));
}

TEST_F(GraphEdgesTest, OtherNodesAndUnknownKernelsKeepTheirPlaces) {
  const CUgraphNode a = Add({0, 1}), b = Add({2, 3}), fill = AddFill(9), c = Add({4, 5}), unknown = Add({6, 7}),
                    d = Add({8, 5});
  unknown_ = {fill, unknown};
  ASSERT_NE(Clone(), nullptr);
  EXPECT_EQ(EdgesOfClone(), (Edges{{a, fill}, {b, fill}, {fill, c}, {c, unknown}, {unknown, d}}));
  EXPECT_EQ(num_asked_, 6);
}

TEST_F(GraphEdgesTest, FillsComeBehindWhatTouchesTheirMemory) {
  const CUgraphNode a = Add({0, 1}), b = Add({2, 3}), fill = AddFill(3), c = Add({4, 5}), d = Add({8, 3});
  ASSERT_NE(Clone(), nullptr);
  EXPECT_EQ(EdgesOfClone(), (Edges{{b, fill}, {fill, d}}));
  EXPECT_NE(a, c);
}

TEST_F(GraphEdgesTest, TheBitsAreThoseOfTheProgramsGraph) {
  std::mt19937 random(3);
  const auto below = [&](size_t n) { return random() % n; };
  std::vector<Step> steps;
  for (int i = 0; i < 300; ++i) {
    steps.push_back({.out = below(kBuffers), .in = below(kBuffers), .addend = static_cast<uint32_t>(below(1000))});
    steps.back().rounds = below(8) == 0 ? 400 : 20;
    Add(steps.back());
  }
  ASSERT_NE(Clone(), nullptr);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(driver_.cuGraphInstantiateWithFlags(&exec, clone_, 0), CUDA_SUCCESS);
  for (int use = 0; use < 3; ++use) {
    ASSERT_EQ(driver_.cuGraphLaunch(exec, stream_.real), CUDA_SUCCESS);
    for (const Step& step : steps) Expect(step);
  }
  ExpectMemory();
  driver_.cuGraphExecDestroy(exec);
}

TEST_F(GraphEdgesTest, CooperativeKernelsAndClustersAreNotAskedAbout) {
  const CUgraphNode a = Add({0, 1}), together = Add({2, 3}), b = Add({4, 5}), c = Add({6, 7}), clusters = Add({8, 5});
  CUlaunchAttributeValue value{};
  value.cooperative = 1;
  ASSERT_EQ(driver_.cuGraphKernelNodeSetAttribute(together, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value), CUDA_SUCCESS);
  value = {};
  value.clusterDim = {.x = 2, .y = 1, .z = 1};
  ASSERT_EQ(driver_.cuGraphKernelNodeSetAttribute(clusters, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value),
            CUDA_SUCCESS);
  ASSERT_NE(Clone(), nullptr);
  EXPECT_EQ(EdgesOfClone(), (Edges{{a, together}, {together, b}, {together, c}, {b, clusters}, {c, clusters}}));
  EXPECT_EQ(num_asked_, 3);
}

TEST_F(GraphEdgesTest, AGraphWithNodesOfItsOwnMindIsLeftAlone) {
  Add({0, 1});
  Add({2, 3});
  ASSERT_NE(Clone(), nullptr);
  CUgraph child = nullptr;
  ASSERT_EQ(driver_.cuGraphCreate(&child, 0), CUDA_SUCCESS);
  CUgraphNode node = nullptr;
  ASSERT_EQ(driver_.cuGraphAddChildGraphNode(&node, graph_, last(), 1, child), CUDA_SUCCESS);
  EXPECT_EQ(Clone(), nullptr);
  driver_.cuGraphDestroy(child);
  ASSERT_EQ(driver_.cuGraphDestroyNode(node), CUDA_SUCCESS);
  ASSERT_NE(Clone(), nullptr);
  CUevent event = nullptr;
  ASSERT_EQ(driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuGraphAddEventRecordNode(&node, graph_, last(), 1, event), CUDA_SUCCESS);
  EXPECT_EQ(Clone(), nullptr);
  ASSERT_EQ(driver_.cuGraphDestroyNode(node), CUDA_SUCCESS);
  driver_.cuEventDestroy_v2(event);
  ASSERT_NE(Clone(), nullptr);
  CUDA_MEM_ALLOC_NODE_PARAMS memory{};
  memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.poolProps.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  memory.bytesize = 4096;
  ASSERT_EQ(driver_.cuGraphAddMemAllocNode(&node, graph_, last(), 1, &memory), CUDA_SUCCESS);
  EXPECT_EQ(Clone(), nullptr);
}

TEST_F(GraphEdgesTest, AGraphThatTheDeviceChangesIsLeftAlone) {
  Add({0, 1});
  Add({2, 3});
  driver_.cuGraphKernelNodeGetAttribute = [](CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue* value) {
    if (id != CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
      return WatchedDriver::real.cuGraphKernelNodeGetAttribute(node, id, value);
    }
    value->deviceUpdatableKernelNode.deviceUpdatable = 1;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(Clone(), nullptr);
}

TEST_F(GraphEdgesTest, EdgesWithDataAreNotReplaced) {
  const CUgraphNode a = Add({0, 1});
  Add({2, 3});
  const CUgraphNode c = Add({4, 5});
  CUgraphEdgeData data{};
  data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  ASSERT_EQ(driver_.cuGraphAddDependencies_v2(graph_, &a, &c, &data, 1), CUDA_SUCCESS);
  EXPECT_EQ(Clone(), nullptr);
}

// Clones that could not be made as they should be are not left behind.
TEST_F(GraphEdgesTest, WhatTheDriverRefusesIsNothingToGain) {
  static int num_graphs;
  num_graphs = 0;
  Add({0, 1});
  Add({2, 3});
  Add({4, 0});
  driver_.cuGraphClone = [](CUgraph* clone, CUgraph graph) {
    ++num_graphs;
    return WatchedDriver::real.cuGraphClone(clone, graph);
  };
  driver_.cuGraphDestroy = [](CUgraph graph) {
    --num_graphs;
    return WatchedDriver::real.cuGraphDestroy(graph);
  };
  const DriverTable able = driver_;
  ASSERT_NE(Clone(), nullptr);
  driver_.cuGraphAddDependencies = [](CUgraph, const CUgraphNode*, const CUgraphNode*, size_t) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  };
  EXPECT_EQ(Clone(), nullptr);
  driver_ = able;
  driver_.cuGraphRemoveDependencies = [](CUgraph, const CUgraphNode*, const CUgraphNode*, size_t) {
    return CUDA_ERROR_NOT_SUPPORTED;
  };
  EXPECT_EQ(Clone(), nullptr);
  driver_ = able;
  driver_.cuGraphNodeFindInClone = nullptr;
  EXPECT_EQ(Clone(), nullptr);
  driver_ = able;
  EXPECT_EQ(num_graphs, 0);
  EXPECT_NE(Clone(), nullptr);
}

}  // namespace
}  // namespace tally::server
