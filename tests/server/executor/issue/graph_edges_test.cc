#include "server/executor/issue/graph_edges.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tests/server/executor/issue/remembered_graphs_fixture.h"

namespace tally::server {
namespace {

using scheduler::Extent;
using scheduler::GraphNodeAccesses;

// A stream that was captured: each node behind the one before.
class GraphEdgesTest : public RememberedGraphsTest {
 protected:
  using Edges = std::set<std::pair<CUgraphNode, CUgraphNode>>;

  void SetUp() override {
    RememberedGraphsTest::SetUp();
    ASSERT_EQ(driver_.cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (clone_ != nullptr) driver_.cuGraphDestroy(clone_);
    driver_.cuGraphDestroy(graph_);
    RememberedGraphsTest::TearDown();
  }

  const CUgraphNode* last() const { return nodes_.empty() ? nullptr : &nodes_.back(); }
  CUgraphNode Note(CUgraphNode node) { return nodes_.emplace_back(node); }
  CUgraphNode Add(const Step& step) {
    PendingLaunch launch = LaunchOf(step);
    DriverArguments arguments(launch);
    const CUDA_KERNEL_NODE_PARAMS_v2 parameters = KernelNodeOf(launch, arguments);
    CUgraphNode node = nullptr;
    EXPECT_EQ(driver_.cuGraphAddKernelNode_v2(&node, graph_, last(), last() != nullptr, &parameters), CUDA_SUCCESS);
    steps_[node] = step;
    return Note(node);
  }
  CUgraphNode AddFill(size_t buffer) {
    const CUDA_MEMSET_NODE_PARAMS fill{
        .dst = memory_[buffer], .pitch = 0, .value = 3, .elementSize = 4, .width = kWords, .height = 1};
    CUgraphNode node = nullptr;
    EXPECT_EQ(driver_.cuGraphAddMemsetNode(&node, graph_, last(), last() != nullptr, &fill, context_), CUDA_SUCCESS);
    return Note(node);
  }
  GraphNodeAccesses AccessesOf(CUgraphNode node) {
    ++num_asked_;
    const Step& step = steps_.at(node);
    if (unknown_.contains(node)) return {};
    return {.extent = Extent::kSaid,
            .accesses = {AccessOf(step.out, scheduler::AccessKind::kReadWrite),
                         AccessOf(step.in, scheduler::AccessKind::kRead)}};
  }
  CUgraph Clone() {
    if (clone_ != nullptr) driver_.cuGraphDestroy(clone_);
    clone_ = CloneWithTrueEdges(driver_, graph_, [this](CUgraphNode node) { return AccessesOf(node); });
    return clone_;
  }
  Edges EdgesOf(CUgraph graph) {
    size_t count = 0;
    EXPECT_EQ(driver_.cuGraphGetEdges(graph, nullptr, nullptr, &count), CUDA_SUCCESS);
    std::vector<CUgraphNode> from(count), to(count);
    EXPECT_EQ(driver_.cuGraphGetEdges(graph, from.data(), to.data(), &count), CUDA_SUCCESS);
    Edges edges;
    for (size_t i = 0; i < count; ++i) edges.emplace(from[i], to[i]);
    return edges;
  }
  // Of the clone, by nodes of the graph.
  Edges EdgesOfClone() {
    std::map<CUgraphNode, CUgraphNode> original;
    for (const CUgraphNode node : nodes_) {
      CUgraphNode cloned = nullptr;
      EXPECT_EQ(driver_.cuGraphNodeFindInClone(&cloned, node, clone_), CUDA_SUCCESS);
      original[cloned] = node;
    }
    Edges edges;
    for (const auto& [from, to] : EdgesOf(clone_)) edges.emplace(original.at(from), original.at(to));
    return edges;
  }

  CUgraph graph_ = nullptr;
  CUgraph clone_ = nullptr;
  std::vector<CUgraphNode> nodes_;
  std::map<CUgraphNode, Step> steps_;
  std::set<CUgraphNode> unknown_;
  int num_asked_ = 0;
};

TEST_F(GraphEdgesTest, FalseEdgesGoAndTheProgramsGraphStays) {
  const CUgraphNode a = Add({0, 1}), b = Add({2, 3}), c = Add({4, 0}), d = Add({5, 2});
  ASSERT_NE(Clone(), nullptr);
  EXPECT_EQ(EdgesOfClone(), (Edges{{a, c}, {b, d}}));
  EXPECT_EQ(EdgesOf(graph_), (Edges{{a, b}, {b, c}, {c, d}}));
}

TEST_F(GraphEdgesTest, OtherNodesAndUnknownKernelsKeepTheirPlaces) {
  const CUgraphNode a = Add({0, 1}), b = Add({2, 3}), fill = AddFill(9), c = Add({4, 5}), unknown = Add({6, 7}),
                    d = Add({8, 5});
  unknown_.insert(unknown);
  ASSERT_NE(Clone(), nullptr);
  EXPECT_EQ(EdgesOfClone(), (Edges{{a, fill}, {b, fill}, {fill, c}, {c, unknown}, {unknown, d}}));
  EXPECT_EQ(num_asked_, 5) << "kernels only";
}

TEST_F(GraphEdgesTest, TheBitsAreThoseOfTheProgramsGraph) {
  std::mt19937 random(3);
  const auto below = [&](size_t n) { return random() % n; };
  std::vector<Step> steps;
  for (int i = 0; i < 300; ++i) {
    steps.push_back({.out = below(kBuffers), .in = below(kBuffers), .addend = static_cast<uint32_t>(below(1000))});
    steps.back().rounds = below(8) == 0 ? 2000 : 20;
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

TEST_F(GraphEdgesTest, ACooperativeKernelIsNotAskedAbout) {
  const CUgraphNode a = Add({0, 1}), together = Add({2, 3}), b = Add({4, 5}), c = Add({6, 7});
  CUlaunchAttributeValue value{};
  value.cooperative = 1;
  ASSERT_EQ(driver_.cuGraphKernelNodeSetAttribute(together, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value), CUDA_SUCCESS);
  ASSERT_NE(Clone(), nullptr);
  EXPECT_EQ(EdgesOfClone(), (Edges{{a, together}, {together, b}, {together, c}}));
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
