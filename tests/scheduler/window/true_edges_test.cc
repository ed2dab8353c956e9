#include "scheduler/window/true_edges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <random>
#include <utility>
#include <vector>

namespace tally::scheduler {
namespace {

constexpr size_t kBytes = 128;
using Bytes = std::bitset<kBytes>;

// What a node does, byte by byte, besides what TrueEdges is told.
struct Node {
  GraphNodeAccesses said;
  Bytes reads, writes;

  Node& Add(AccessKind kind, const Box& box) {
    said.accesses.push_back({box, kind});
    for (uint64_t row = 0; row < box.rows(); ++row) {
      for (uint64_t i = 0; i < box.row_bytes(); ++i) {
        const uint64_t byte = box.begin() + row * box.pitch() + i;
        if (Reads(kind)) reads.set(byte);
        if (Writes(kind)) writes.set(byte);
      }
    }
    return *this;
  }
};
Node Known() { return {.said = {.extent = Extent::kSaid, .accesses = {}}, .reads = {}, .writes = {}}; }
Node Unknown() { return {}; }
Node Reading(uint64_t byte) { return Known().Add(AccessKind::kRead, *Box::Range(byte, 1)); }
Node Writing(uint64_t byte) { return Known().Add(AccessKind::kWrite, *Box::Range(byte, 1)); }

struct Graph {
  std::vector<Node> nodes;
  std::vector<GraphEdge> edges;

  std::optional<std::vector<GraphEdge>> True(size_t window = kNodesCompared) const {
    std::vector<GraphNodeAccesses> said;
    for (const Node& node : nodes) said.push_back(node.said);
    return TrueEdges(said, edges, window);
  }
  bool AreInConflict(size_t a, size_t b) const {
    if (nodes[a].said.extent == Extent::kAnything || nodes[b].said.extent == Extent::kAnything) return true;
    const Bytes a_uses = nodes[a].reads | nodes[a].writes, b_uses = nodes[b].reads | nodes[b].writes;
    return (nodes[a].writes & b_uses).any() || (nodes[b].writes & a_uses).any();
  }
};

// One stream, captured.
Graph Captured(std::vector<Node> nodes) {
  Graph graph{.nodes = std::move(nodes), .edges = {}};
  for (uint32_t i = 1; i < graph.nodes.size(); ++i) graph.edges.push_back({i - 1, i});
  return graph;
}

using Order = std::vector<std::vector<bool>>;  // [a][b]: a comes before b

Order OrderOf(size_t count, const std::vector<GraphEdge>& edges) {
  Order order(count, std::vector<bool>(count));
  for (const GraphEdge& edge : edges) order[edge.from][edge.to] = true;
  for (size_t via = 0; via < count; ++via) {
    for (size_t a = 0; a < count; ++a) {
      if (!order[a][via]) continue;
      for (size_t b = 0; b < count; ++b) {
        if (order[via][b]) order[a][b] = true;
      }
    }
  }
  return order;
}

std::vector<GraphEdge> Sorted(std::vector<GraphEdge> edges) {
  std::ranges::sort(edges, {}, [](const GraphEdge& edge) { return std::pair(edge.from, edge.to); });
  return edges;
}

TEST(TrueEdgesTest, WhatDoesNotConflictRunsSideBySide) {
  const auto edges = Captured({Writing(0), Writing(1), Reading(0), Reading(1)}).True();
  ASSERT_TRUE(edges);
  EXPECT_EQ(Sorted(*edges), (std::vector<GraphEdge>{{0, 2}, {1, 3}}));
}

TEST(TrueEdgesTest, AllThreeHazardsCount) {
  for (const auto& [first, second] :
       {std::pair(Writing(0), Reading(0)), std::pair(Reading(0), Writing(0)), std::pair(Writing(0), Writing(0))}) {
    const auto edges = Captured({first, Reading(9), second}).True();
    ASSERT_TRUE(edges);
    EXPECT_EQ(*edges, (std::vector<GraphEdge>{{0, 2}}));
  }
  const auto edges = Captured({Reading(0), Reading(0), Reading(0)}).True();
  ASSERT_TRUE(edges);
  EXPECT_TRUE(edges->empty());
}

TEST(TrueEdgesTest, ANodeThatIsNotKnownKeepsItsPlace) {
  const auto edges = Captured({Writing(0), Writing(1), Unknown(), Writing(2), Writing(3)}).True();
  ASSERT_TRUE(edges);
  EXPECT_EQ(Sorted(*edges), (std::vector<GraphEdge>{{0, 2}, {1, 2}, {2, 3}, {2, 4}}));
}

TEST(TrueEdgesTest, OneThatReadsAnythingIsBesideThoseThatRead) {
  Node reads_anything = Known().Add(AccessKind::kWrite, *Box::Range(5, 1));
  reads_anything.said.extent = Extent::kReadsAnything;
  const auto edges = Captured({Writing(0), Reading(1), reads_anything, Reading(2), Writing(3)}).True();
  ASSERT_TRUE(edges);
  EXPECT_EQ(Sorted(*edges), (std::vector<GraphEdge>{{0, 2}, {2, 4}}));
}

// A race of the program's own stays one: ordering it might make it wait for itself.
TEST(TrueEdgesTest, WhatTheGraphDoesNotOrderIsNotOrdered) {
  Graph graph{.nodes = {Writing(0), Writing(0), Writing(0), Reading(7)}, .edges = {{0, 2}, {1, 3}}};
  const auto edges = graph.True();
  ASSERT_TRUE(edges);
  EXPECT_EQ(*edges, (std::vector<GraphEdge>{{0, 2}}));
}

TEST(TrueEdgesTest, NothingIsToBeDone) {
  EXPECT_FALSE(Graph{}.True());
  EXPECT_FALSE(Captured({Writing(0)}).True());
  EXPECT_FALSE(Captured({Writing(0), Reading(0), Writing(0)}).True()) << "it needs all that it has";
  EXPECT_FALSE(Captured({Unknown(), Unknown()}).True());
  Graph implied = Captured({Writing(0), Writing(0), Writing(0)});
  implied.edges.push_back({0, 2});
  EXPECT_FALSE(implied.True()) << "the same order";
  Graph cycle = Captured({Reading(0), Reading(1), Reading(2), Reading(3)});
  cycle.edges.push_back({3, 2});
  EXPECT_FALSE(cycle.True());
}

TEST(TrueEdgesTest, TooLargeIsLeftAlone) {
  const auto two_chains = [](size_t count) {
    std::vector<Node> nodes;
    for (size_t i = 0; i < count; ++i) nodes.push_back(Writing(i % 2));
    return Captured(std::move(nodes));
  };
  EXPECT_TRUE(two_chains(kMostGraphNodes).True());
  EXPECT_FALSE(two_chains(kMostGraphNodes + 1).True());
}

// Windows of 2: what is dropped within them, nothing between.
TEST(TrueEdgesTest, WindowsFollowOneAnother) {
  const auto edges = Captured({Reading(0), Reading(1), Reading(2), Reading(3), Writing(4), Reading(4)}).True(2);
  ASSERT_TRUE(edges);
  EXPECT_EQ(Sorted(*edges), (std::vector<GraphEdge>{{0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 4}, {3, 4}, {4, 5}}));
}

// Windows in which nothing depends on anything would be joined by a square of edges.
TEST(TrueEdgesTest, MoreEdgesThanTheGraphIsWorthAreNotAdded) {
  const Graph graph = Captured(std::vector<Node>(4 * 64, Reading(0)));
  EXPECT_TRUE(graph.True(8));
  EXPECT_FALSE(graph.True(64));
  EXPECT_TRUE(graph.True(4 * 64)) << "it is one window";
}

TEST(TrueEdgesTest, RandomGraphsKeepWhatConflictsAndNothingElse) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return random() % n; };
  size_t num_changed = 0;
  for (int round = 0; round < 400; ++round) {
    const size_t count = 2 + below(90);
    const size_t window = round % 3 == 0 ? 1 + below(20) : kNodesCompared;
    Graph graph;
    for (size_t i = 0; i < count; ++i) {
      Node& node = graph.nodes.emplace_back(below(15) == 0 ? Unknown() : Known());
      if (node.said.extent == Extent::kAnything) continue;
      const size_t num_accesses = below(4);
      for (size_t k = 0; k < num_accesses; ++k) {
        const uint64_t pitch = 8, rows = 1 + below(4), begin = below(kBytes - pitch * rows);
        node.Add(static_cast<AccessKind>(below(3)), *Box::Rows(begin, 1 + below(4), rows, pitch));
      }
      if (below(15) == 0) {
        node.said.extent = Extent::kReadsAnything;
        node.reads.set();
      }
    }
    // Names of nodes say nothing about their order.
    std::vector<uint32_t> names(count);
    for (uint32_t i = 0; i < count; ++i) names[i] = i;
    std::shuffle(names.begin(), names.end(), random);
    const bool is_captured = below(2) == 0;
    for (uint32_t b = 1; b < count; ++b) {
      if (is_captured) graph.edges.push_back({names[b - 1], names[b]});
      for (size_t k = below(is_captured ? 2 : 4); k > 0; --k) {
        const GraphEdge edge{names[below(b)], names[b]};
        if (std::ranges::find(graph.edges, edge) == graph.edges.end()) graph.edges.push_back(edge);
      }
    }
    const auto found = graph.True(window);
    if (!found) continue;
    ++num_changed;
    const Order had = OrderOf(count, graph.edges), has = OrderOf(count, *found);
    for (size_t a = 0; a < count; ++a) {
      for (size_t b = 0; b < count; ++b) {
        EXPECT_TRUE(had[a][b] || !has[a][b]) << "ordered what was not";
        EXPECT_TRUE(has[a][b] || !had[a][b] || !graph.AreInConflict(a, b)) << "dropped what is needed";
      }
    }
    for (const GraphEdge& edge : *found) {
      EXPECT_TRUE(window != kNodesCompared || graph.AreInConflict(edge.from, edge.to)) << "not needed";
      for (size_t via = 0; via < count; ++via) {
        EXPECT_FALSE(has[edge.from][via] && has[via][edge.to]) << "implied";
      }
    }
    if (testing::Test::HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(num_changed, 300u);
}

}  // namespace
}  // namespace tally::scheduler
