// A program's graph on the software device, as a captured stream leaves it: each node behind the one before.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "server/executor/issue/graph_edges.h"
#include "tests/server/executor/issue/remembered_graphs_fixture.h"

namespace tally::server {

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
    fills_[node] = buffer;
    return Note(node);
  }
  scheduler::GraphNodeAccesses AccessesOf(CUgraphNode node) {
    ++num_asked_;
    if (const auto fill = fills_.find(node); fill != fills_.end() && !unknown_.contains(node)) {
      return {.extent = scheduler::Extent::kSaid, .accesses = {AccessOf(fill->second, scheduler::AccessKind::kWrite)}};
    }
    if (unknown_.contains(node)) return {};
    const Step& step = steps_.at(node);
    return {.extent = scheduler::Extent::kSaid,
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
  std::map<CUgraphNode, size_t> fills_;  // of which buffer
  std::set<CUgraphNode> unknown_;
  int num_asked_ = 0;
};

}  // namespace tally::server
