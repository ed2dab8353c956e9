#include "server/executor/issue/partitioned_graph.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <set>

#include "server/executor/issue/graph_cut.h"
#include "server/executor/issue/launch_forms.h"
#include "tests/server/executor/issue/graph_edges_fixture.h"

namespace tally::server {
namespace {

using scheduler::GraphEdge;

// On a software GPU that starts a random one of what may start: an edge that is lost shows.
class PartitionedGraphTest : public GraphEdgesTest {
 protected:
  static void SetUpTestSuite() { ::setenv("TALLY_SIM_SHUFFLE", "5", 1); }

  void SetUp() override {
    GraphEdgesTest::SetUp();
    for (LaunchStream& stream : others_) stream.real = Stream();
  }
  void TearDown() override {
    parts_.reset();
    for (LaunchStream& stream : others_) driver_.cuStreamDestroy_v2(stream.real);
    GraphEdgesTest::TearDown();
  }

  // A node behind those given; unlike Add it is not behind the one before.
  uint32_t AddBehind(const Step& step, const std::vector<uint32_t>& behind) {
    std::vector<CUgraphNode> dependencies;
    for (const uint32_t node : behind) dependencies.push_back(nodes_[node]);
    PendingLaunch launch = LaunchOf(step);
    DriverArguments arguments(launch);
    const CUDA_KERNEL_NODE_PARAMS_v2 parameters = KernelNodeOf(launch, arguments);
    CUgraphNode node = nullptr;
    EXPECT_EQ(driver_.cuGraphAddKernelNode_v2(&node, graph_, dependencies.data(), dependencies.size(), &parameters),
              CUDA_SUCCESS);
    steps_[node] = step;
    order_.push_back(step);
    nodes_.push_back(node);
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  void Connect(uint32_t from, uint32_t to, unsigned char port) {
    const CUgraphEdgeData edge{
        .from_port = port, .to_port = 0, .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, .reserved = {}};
    ASSERT_EQ(driver_.cuGraphAddDependencies_v2(graph_, &nodes_[from], &nodes_[to], &edge, 1), CUDA_SUCCESS);
  }
  void Read() {
    ASSERT_EQ(ReadTasks(driver_, graph_, &tasks_), control::WholeReason::kNone);
    place_.clear();
    for (uint32_t task = 0; task < tasks_.tasks.size(); ++task) place_[tasks_.tasks[task].node] = task;
  }
  // By node, as they were added.
  PartitionedGraph::Cut CutAs(const std::vector<uint32_t>& partition_of_node, std::set<uint32_t> alone = {}) {
    PartitionedGraph::Cut cut;
    cut.partition_of.resize(partition_of_node.size());
    for (size_t i = 0; i < nodes_.size(); ++i) cut.partition_of[place_.at(nodes_[i])] = partition_of_node[i];
    cut.num_partitions = *std::ranges::max_element(partition_of_node) + 1;
    for (uint32_t i = 0; i < cut.num_partitions; ++i) cut.is_alone.push_back(alone.contains(i));
    return cut;
  }
  void Make(const PartitionedGraph::Cut& cut, size_t most_streams = PartitionedGraph::kMostStreams) {
    ASSERT_TRUE(PartitionedGraph::IsInOrder(tasks_, cut));
    parts_ = PartitionedGraph::Make(driver_, context_, tasks_, cut, 0, most_streams);
    ASSERT_NE(parts_, nullptr);
  }
  CUresult Launch() {
    num_alone_ = 0;
    return parts_->Launch({stream_, others_, *completions_, owner_, {}, [&](uint32_t task) {
                             ++num_alone_;
                             PendingLaunch launch = LaunchOf(steps_.at(tasks_.tasks[task].node));
                             return LaunchOriginal(launch);
                           }});
  }
  void LaunchAndExpect() {
    ASSERT_EQ(Launch(), CUDA_SUCCESS);
    for (const Step& step : order_) Expect(step);
  }

  std::array<LaunchStream, PartitionedGraph::kMostStreams - 1> others_;
  GraphTasks tasks_;
  std::map<CUgraphNode, uint32_t> place_;
  std::vector<Step> order_;  // one that the edges allow
  std::unique_ptr<PartitionedGraph> parts_;
  int num_alone_ = 0;
  static inline int refuse_third_ = 0;
};

// Two branches, of one buffer each, and what joins them.
TEST_F(PartitionedGraphTest, BranchesGoToStreamsOfTheirOwn) {
  const uint32_t a = AddBehind({0, 1, 1}, {});
  const uint32_t left = AddBehind({0, 2, 2}, {a}), right = AddBehind({3, 0, 3}, {left});
  const uint32_t other = AddBehind({4, 5, 4}, {a});
  AddBehind({6, 3, 5}, {right, other});
  Read();
  Make(CutAs({0, 1, 1, 2, 3}));
  EXPECT_EQ(parts_->num_partitions(), 4u);
  EXPECT_EQ(parts_->num_streams(), 2u);
  for (int i = 0; i < 20; ++i) LaunchAndExpect();
  EXPECT_EQ(admission_.num_asked, 80) << "each partition passes admission";
  ExpectMemory();
}

TEST_F(PartitionedGraphTest, WhatComesNextOnTheProgramsStreamWaitsForAll) {
  AddBehind({.out = 0, .in = 1, .addend = 1, .rounds = 4000}, {});
  AddBehind({.out = 2, .in = 3, .addend = 2, .rounds = 4000}, {});
  Read();
  Make(CutAs({0, 1}));
  ASSERT_EQ(parts_->num_streams(), 2u);
  for (int i = 0; i < 10; ++i) {
    LaunchAndExpect();
    // On the program's stream, of what the other one writes.
    PendingLaunch next = LaunchOf({4, 2, 7});
    ASSERT_EQ(LaunchOriginal(next), CUDA_SUCCESS);
    Expect({4, 2, 7});
    // And what the graph reads is written before it begins.
    PendingLaunch before = LaunchOf({3, 4, 9});
    ASSERT_EQ(LaunchOriginal(before), CUDA_SUCCESS);
    Expect({3, 4, 9});
  }
  ExpectMemory();
}

TEST_F(PartitionedGraphTest, AKernelAloneIsLaunchedByItsOwnerOnTheProgramsStream) {
  const uint32_t a = AddBehind({0, 1, 1}, {});
  const uint32_t b = AddBehind({0, 2, 2}, {a});
  AddBehind({3, 4, 3}, {});
  AddBehind({0, 3, 4}, {b});
  Read();
  order_ = {order_[2], order_[0], order_[1], order_[3]};
  Make(CutAs({0, 1, 0, 2}, {1}));
  EXPECT_EQ(parts_->num_streams(), 1u);
  for (int i = 0; i < 5; ++i) {
    LaunchAndExpect();
    EXPECT_EQ(num_alone_, 1);
  }
  ExpectMemory();
}

TEST_F(PartitionedGraphTest, FillsCopiesAndEmptyNodesAreTasks) {
  Add({0, 1, 5});
  AddFill(2);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory_[2];
  copy.dstDevice = memory_[3];
  copy.WidthInBytes = kWords * 4;
  copy.Height = copy.Depth = 1;
  CUgraphNode node = nullptr;
  ASSERT_EQ(driver_.cuGraphAddMemcpyNode(&node, graph_, last(), 1, &copy, context_), CUDA_SUCCESS);
  Note(node);
  ASSERT_EQ(driver_.cuGraphAddEmptyNode(&node, graph_, last(), 1), CUDA_SUCCESS);
  Note(node);
  Add({4, 3, 6});
  Read();
  Make(CutAs({0, 0, 1, 1, 2}));
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Launch(), CUDA_SUCCESS);
    Expect({0, 1, 5});
    std::ranges::fill(expected_[2], 3);
    expected_[3] = expected_[2];
    Expect({4, 3, 6});
  }
  ExpectMemory();
}

// The driver's own rule for the program's executable.
TEST_F(PartitionedGraphTest, MayGoWhileItRuns) {
  const uint32_t a = AddBehind({.out = 0, .in = 1, .addend = 1, .rounds = 3000}, {});
  AddBehind({.out = 0, .in = 2, .addend = 2, .rounds = 3000}, {a});
  AddBehind({.out = 3, .in = 4, .addend = 3, .rounds = 3000}, {});
  Read();
  Make(CutAs({0, 1, 2}));
  LaunchAndExpect();
  parts_.reset();
  ExpectMemory();
}

TEST_F(PartitionedGraphTest, ItsProgramsGraphMayGo) {
  const uint32_t a = AddBehind({0, 1, 1}, {});
  AddBehind({0, 2, 2}, {a});
  Read();
  Make(CutAs({0, 1}));
  ASSERT_EQ(driver_.cuGraphDestroy(graph_), CUDA_SUCCESS);
  LaunchAndExpect();
  ASSERT_EQ(driver_.cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
  ExpectMemory();
}

TEST_F(PartitionedGraphTest, AClientThatHasLeftLaunchesNoMore) {
  AddBehind({0, 1, 1}, {});
  AddBehind({2, 3, 2}, {});
  Read();
  Make(CutAs({0, 1}));
  tenant_.Leave();
  EXPECT_EQ(Launch(), AdmittedDispatch::kCancelled);
  EXPECT_EQ(WatchedDriver::num_graph_launches, 0);
  EXPECT_EQ(admission_.num_asked, 1) << "the first one that is refused is the last one asked about";
  ExpectMemory();
}

// What was launched is waited for all the same.
TEST_F(PartitionedGraphTest, AfterARefusalTheStreamStillWaits) {
  AddBehind({.out = 0, .in = 1, .addend = 1, .rounds = 4000}, {});
  AddBehind({.out = 2, .in = 3, .addend = 2, .rounds = 4000}, {});
  AddBehind({4, 5, 3}, {});
  Read();
  Make(CutAs({0, 1, 2}));
  ASSERT_EQ(parts_->num_streams(), 3u);
  for (int i = 0; i < 8; ++i) {
    LaunchAndExpect();
    refuse_third_ = 2;
    driver_.cuGraphLaunch = [](CUgraphExec exec, CUstream stream) {
      if (refuse_third_-- == 0) return CUDA_ERROR_INVALID_VALUE;
      return WatchedDriver::real.cuGraphLaunch(exec, stream);
    };
    EXPECT_EQ(Launch(), CUDA_ERROR_INVALID_VALUE);
    driver_.cuGraphLaunch = WatchedDriver::real.cuGraphLaunch;
    Expect(order_[0]);
    Expect(order_[1]);
    PendingLaunch next = LaunchOf({6, 2, 7});
    ASSERT_EQ(LaunchOriginal(next), CUDA_SUCCESS);
    Expect({6, 2, 7});
  }
  ExpectMemory();
}

TEST_F(PartitionedGraphTest, APartitionThatTheDriverRefusesLeavesNothing) {
  AddBehind({0, 1, 1}, {});
  AddBehind({2, 3, 2}, {});
  Read();
  WatchedDriver::refuse_instantiation = CUDA_ERROR_OUT_OF_MEMORY;
  const auto cut = CutAs({0, 1});
  EXPECT_EQ(PartitionedGraph::Make(driver_, context_, tasks_, cut, 0, 4), nullptr);
  EXPECT_EQ(WatchedDriver::num_executables, 0);
}

TEST_F(PartitionedGraphTest, ANodeThatIsSetIsSetInItsPartition) {
  const uint32_t a = AddBehind({0, 1, 1}, {});
  const uint32_t b = AddBehind({0, 2, 2}, {a});
  Read();
  Make(CutAs({0, 1}));
  LaunchAndExpect();
  order_[b].addend = 1000;
  PendingLaunch launch = LaunchOf(order_[b]);
  DriverArguments arguments(launch);
  const CUDA_KERNEL_NODE_PARAMS_v2 parameters = KernelNodeOf(launch, arguments);
  EXPECT_TRUE(parts_->Follow(place_.at(nodes_[b]), [&](CUgraphExec exec, CUgraphNode node) {
    return driver_.cuGraphExecKernelNodeSetParams_v2(exec, node, &parameters);
  }));
  LaunchAndExpect();
  EXPECT_FALSE(parts_->Follow(place_.at(nodes_[b]), [](auto, auto) { return CUDA_ERROR_INVALID_VALUE; }));
  ExpectMemory();
}

TEST_F(PartitionedGraphTest, WhatIsNoCutOfTheGraph) {
  const uint32_t a = AddBehind({0, 1, 1}, {});
  AddBehind({0, 2, 2}, {a});
  CUgraphNode node = nullptr;
  ASSERT_EQ(driver_.cuGraphAddEmptyNode(&node, graph_, last(), 1), CUDA_SUCCESS);
  Note(node);
  Read();
  EXPECT_TRUE(PartitionedGraph::IsInOrder(tasks_, CutAs({0, 0, 1})));
  EXPECT_FALSE(PartitionedGraph::IsInOrder(tasks_, CutAs({1, 0, 1}))) << "an edge leads back";
  EXPECT_FALSE(PartitionedGraph::IsInOrder(tasks_, CutAs({0, 0, 2}))) << "one is empty";
  EXPECT_FALSE(PartitionedGraph::IsInOrder(tasks_, CutAs({0, 0, 1}, {0}))) << "two are not alone";
  EXPECT_FALSE(PartitionedGraph::IsInOrder(tasks_, CutAs({0, 0, 1}, {1}))) << "nothing to launch";
  PartitionedGraph::Cut cut = CutAs({0, 0, 1});
  cut.partition_of.pop_back();
  EXPECT_FALSE(PartitionedGraph::IsInOrder(tasks_, cut));
}

// Whatever the graph and however it is cut: the bits of serial execution.
TEST_F(PartitionedGraphTest, RandomGraphsCutAtRandom) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](size_t bound) { return static_cast<uint32_t>(random() % bound); };
    driver_.cuGraphDestroy(graph_);
    ASSERT_EQ(driver_.cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
    nodes_.clear();
    steps_.clear();
    order_.clear();
    const uint32_t count = 2 + below(40);
    std::map<size_t, uint32_t> writer;
    std::map<size_t, std::set<uint32_t>> readers;
    for (uint32_t i = 0; i < count; ++i) {
      const Step step{below(kBuffers), below(kBuffers), static_cast<uint32_t>(random()), 20 + below(200)};
      std::set<uint32_t> behind = readers[step.out];
      for (const size_t buffer : {step.out, step.in}) {
        if (const auto found = writer.find(buffer); found != writer.end()) behind.insert(found->second);
      }
      if (i != 0 && below(4) == 0) behind.insert(below(i));
      const uint32_t node = AddBehind(step, {behind.begin(), behind.end()});
      readers[step.out].clear();
      readers[step.in].insert(node);
      writer[step.out] = node;
    }
    Read();
    // Tasks are in an order that the edges allow; any stretches of it are partitions.
    PartitionedGraph::Cut cut;
    std::vector<uint32_t> num_tasks;
    for (uint32_t task = 0; task < count; ++task) {
      if (task == 0 || below(3) == 0) num_tasks.push_back(0);
      cut.partition_of.push_back(static_cast<uint32_t>(num_tasks.size() - 1));
      ++num_tasks.back();
    }
    cut.num_partitions = static_cast<uint32_t>(num_tasks.size());
    const bool has_alone = below(2) == 0;
    for (const uint32_t tasks : num_tasks) cut.is_alone.push_back(has_alone && tasks == 1 && below(2) == 0);
    Make(cut, 1 + below(PartitionedGraph::kMostStreams));
    for (int i = 0; i < 3; ++i) LaunchAndExpect();
    parts_.reset();
  }
  ExpectMemory();
}

// --- what a graph is read as ----------------------------------------------------------------------------------------

TEST_F(PartitionedGraphTest, AGraphWithAHostNodeIsLeftWhole) {
  Add({0, 1, 1});
  const CUDA_HOST_NODE_PARAMS host{.fn = [](void*) {}, .userData = nullptr};
  CUgraphNode node = nullptr;
  ASSERT_EQ(driver_.cuGraphAddHostNode(&node, graph_, last(), 1, &host), CUDA_SUCCESS);
  EXPECT_EQ(ReadTasks(driver_, graph_, &tasks_), control::WholeReason::kNodes);
}

TEST_F(PartitionedGraphTest, OfAGraphThatIsTooLargeNoNodeIsAskedFor) {
  driver_.cuGraphGetNodes = [](CUgraph, CUgraphNode* nodes, size_t* count) -> CUresult {
    EXPECT_EQ(nodes, nullptr);
    *count = 1'000'000;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(ReadTasks(driver_, graph_, &tasks_), control::WholeReason::kTooLarge);
}

// As captures of cuBLAS's kernels have them: the second may begin before the first has ended.
TEST_F(PartitionedGraphTest, AProgrammaticEdgeBecomesAFullOne) {
  const uint32_t a = AddBehind({.out = 0, .in = 1, .addend = 1, .rounds = 400}, {});
  const uint32_t b = AddBehind({.out = 2, .in = 0, .addend = 2}, {}),
                 c = AddBehind({.out = 3, .in = 2, .addend = 3}, {});
  Connect(a, b, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
  Connect(b, c, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
  Read();
  EXPECT_EQ(tasks_.edges, (std::vector<GraphEdge>{{0, 1}, {1, 2}}));
  Make(CutAs({0, 0, 1}));
  for (int i = 0; i < 20; ++i) LaunchAndExpect();
  ExpectMemory();
}

TEST_F(PartitionedGraphTest, AnEdgeThatOrdersLaunchesLeavesItWhole) {
  const uint32_t a = AddBehind({0, 1, 1}, {}), b = AddBehind({2, 3, 2}, {});
  Connect(a, b, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
  EXPECT_EQ(ReadTasks(driver_, graph_, &tasks_), control::WholeReason::kEdges);
}

TEST_F(PartitionedGraphTest, AnEdgeOfAKindThatIsNotKnownLeavesItWhole) {
  AddBehind({0, 1, 1}, {});
  static CUgraphEdgeData edge;
  driver_.cuGraphGetEdges_v2 = [](CUgraph, CUgraphNode* from, CUgraphNode*, CUgraphEdgeData* data,
                                  size_t* count) -> CUresult {
    *count = 1;
    if (from != nullptr) *data = edge;
    return CUDA_SUCCESS;
  };
  for (const CUgraphEdgeData unknown : {CUgraphEdgeData{.from_port = 3, .to_port = 0, .type = 1, .reserved = {}},
                                        CUgraphEdgeData{.from_port = 1, .to_port = 0, .type = 0, .reserved = {}},
                                        CUgraphEdgeData{.from_port = 1, .to_port = 1, .type = 1, .reserved = {}},
                                        CUgraphEdgeData{.from_port = 0, .to_port = 0, .type = 2, .reserved = {}}}) {
    edge = unknown;
    EXPECT_EQ(ReadTasks(driver_, graph_, &tasks_), control::WholeReason::kEdges);
  }
}

TEST_F(PartitionedGraphTest, TasksComeBehindThoseThatTheyDependOn) {
  const uint32_t a = AddBehind({0, 1, 1}, {}), b = AddBehind({2, 3, 1}, {});
  ASSERT_EQ(driver_.cuGraphAddDependencies(graph_, &nodes_[b], &nodes_[a], 1), CUDA_SUCCESS);
  Read();
  EXPECT_LT(place_.at(nodes_[b]), place_.at(nodes_[a]));
  ASSERT_EQ(tasks_.edges.size(), 1u);
  EXPECT_LT(tasks_.edges[0].from, tasks_.edges[0].to);
}

}  // namespace
}  // namespace tally::server
