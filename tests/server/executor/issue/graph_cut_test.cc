#include "server/executor/issue/graph_cut.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>

namespace tally::server {
namespace {

using std::chrono::nanoseconds;

GraphTasks Chain(uint32_t count) {
  GraphTasks graph;
  for (uint32_t i = 0; i < count; ++i) graph.tasks.push_back({nullptr, NodeKind::kKernel});
  for (uint32_t i = 1; i < count; ++i) graph.edges.push_back({i - 1, i});
  return graph;
}
std::vector<size_t> Sizes(const PartitionedGraph::Cut& cut) {
  std::vector<size_t> sizes(cut.num_partitions);
  for (const uint32_t partition : cut.partition_of) ++sizes[partition];
  return sizes;
}
using Costs = std::vector<nanoseconds>;

TEST(GraphCut, OfUnknownCostIsCutByItsNodes) {
  const GraphTasks chain = Chain(150);
  EXPECT_EQ(Sizes(CutOf(chain, {}, nanoseconds(1000))), (std::vector<size_t>{64, 64, 22}));
  EXPECT_EQ(Sizes(CutOf(chain, Costs(150), nanoseconds(1000))), (std::vector<size_t>{64, 64, 22}));
}

TEST(GraphCut, OfKnownCostIsCutByItsTime) {
  EXPECT_EQ(Sizes(CutOf(Chain(10), Costs(10, nanoseconds(400)), nanoseconds(1000))),
            (std::vector<size_t>{2, 2, 2, 2, 2}));
  EXPECT_EQ(Sizes(CutOf(Chain(600), Costs(600, nanoseconds(1)), nanoseconds(1000))),
            (std::vector<size_t>{256, 256, 88}));
}

TEST(GraphCut, WhatIsTooLongIsAlone) {
  GraphTasks chain = Chain(5);
  Costs costs(5, nanoseconds(10));
  costs[2] = nanoseconds(5000);
  const auto cut = CutOf(chain, costs, nanoseconds(1000));
  EXPECT_EQ(Sizes(cut), (std::vector<size_t>{2, 1, 2}));
  EXPECT_EQ(cut.is_alone, (std::vector<bool>{false, true, false}));
  chain.tasks[2].kind = NodeKind::kEmpty;
  EXPECT_EQ(CutOf(chain, costs, nanoseconds(1000)).is_alone, (std::vector<bool>{false, false, false}))
      << "there is nothing to launch";
}

TEST(GraphCut, ACostIsNoReasonToWrap) {
  const Costs costs(3, nanoseconds::max());
  EXPECT_EQ(Sizes(CutOf(Chain(3), costs, nanoseconds(1000))), (std::vector<size_t>{1, 1, 1}));
}

TEST(GraphCut, AsManyNodesAsTheEnvironmentSays) {
  ::setenv("TALLY_GRAPH_PARTITION_NODES", "3", 1);
  EXPECT_EQ(Sizes(CutOf(Chain(7), {}, nanoseconds(0))), (std::vector<size_t>{3, 3, 1}));
  ::setenv("TALLY_GRAPH_PARTITION_NODES", "nonsense", 1);
  EXPECT_EQ(Sizes(CutOf(Chain(2), {}, nanoseconds(0))), (std::vector<size_t>{1, 1}));
  ::unsetenv("TALLY_GRAPH_PARTITION_NODES");
}

TEST(GraphCut, AnyGraphIsCutInOrder) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    GraphTasks graph;
    const uint32_t count = 1 + random() % 300;
    constexpr NodeKind kKinds[] = {NodeKind::kKernel, NodeKind::kFill, NodeKind::kCopy, NodeKind::kEmpty};
    std::set<scheduler::GraphEdge> edges;
    Costs costs;
    for (uint32_t i = 0; i < count; ++i) {
      graph.tasks.push_back({nullptr, kKinds[random() % 4]});
      costs.push_back(nanoseconds(random() % 3000));
      for (uint32_t k = random() % 3; i != 0 && k != 0; --k) {
        edges.insert({static_cast<uint32_t>(random() % i), i});
      }
    }
    graph.edges.assign(edges.begin(), edges.end());
    const auto cut = CutOf(graph, costs, nanoseconds(2000));
    ASSERT_TRUE(PartitionedGraph::IsInOrder(graph, cut)) << seed;
    Costs sums(cut.num_partitions);
    for (uint32_t i = 0; i < count; ++i) sums[cut.partition_of[i]] += costs[i];
    const std::vector<size_t> sizes = Sizes(cut);
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_TRUE(sizes[i] == 1 || sums[i] <= nanoseconds(2000)) << seed << ": " << i;
    }
  }
}

}  // namespace
}  // namespace tally::server
