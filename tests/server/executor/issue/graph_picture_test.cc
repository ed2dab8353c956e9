#include "server/executor/issue/graph_picture.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

GraphOutline Outline() {
  GraphOutline outline;
  outline.nodes = {{NodeKind::kKernel, 0, 0}, {NodeKind::kFill, 0, 0}, {NodeKind::kKernel, 1, 1}};
  outline.edges = {{0, 2}, {1, 2}};
  outline.names = {"add", "scale"};
  outline.partitions = {{12'300, false}, {0, true}};
  return outline;
}

TEST(GraphPicture, HasNodesByPartitionAndAllEdges) {
  EXPECT_EQ(GraphPicture(Outline()), R"(digraph graph_in_partitions {
  node [shape=box];
  subgraph cluster_0 {
    label="partition 0: 2 nodes, 12.3 us";
    n0 [label="add"];
    n1 [label="fill"];
  }
  subgraph cluster_1 {
    label="partition 1: 1 node, by itself";
    n2 [label="scale"];
  }
  n0 -> n2;
  n1 -> n2;
}
)");
}

// Names are what a program calls its kernels.
TEST(GraphPicture, ANameIsNoMoreThanAName) {
  GraphOutline outline = Outline();
  outline.names[0] = "a\"]; evil [label=\"\n\\\x1b\xff";
  EXPECT_NE(GraphPicture(outline).find(R"(n0 [label="a\"]; evil [label=\"?\\??"];)"), std::string::npos)
      << GraphPicture(outline);
}

TEST(GraphPicture, OfAManyNodesItHasThePartitionsOnly) {
  GraphOutline outline = Outline();
  outline.nodes.resize(kMostNodesDrawn + 1, {NodeKind::kEmpty, 1, 0});
  outline.edges.push_back({1, 3});
  const std::string text = GraphPicture(outline);
  EXPECT_EQ(text.find("n0"), std::string::npos);
  EXPECT_NE(text.find("  p0 -> p1;\n}"), std::string::npos) << "an edge between two of them, once";
  EXPECT_NE(text.find("p1 [label=\"partition 1: 1999 nodes"), std::string::npos) << text;
}

}  // namespace
}  // namespace tally::server
