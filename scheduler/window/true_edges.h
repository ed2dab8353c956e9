// TrueEdges: the edges that a graph needs, in place of those it has.
//
// A stream that was captured gives a graph in which each node comes behind the one before, whether it needs it or not:
//
//     had    a -> b -> c -> d          a writes x, b writes y, c reads x, d reads y
//     needs  a ------> c
//                 b ------> d
//
// Only what the graph orders may be ordered: the new order is a part of the old one. What conflicts (reads after
// writes, writes after reads, writes after writes) stays ordered, and so does all that comes before or behind a node
// of which nobody knows what it does. No edge is left that others imply.
//
// Nodes are looked at in an order of the graph, `window` at a time. Between windows all stays ordered, by edges from
// node to node: a join through an empty node costs more on the GPU (8 to 16 us) than the edges do.
//
// Pure. Cost: a comparison of all accesses for each pair of nodes in a window that may run side by side, and a bit for
// each pair of nodes.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "scheduler/window/access.h"
#include "scheduler/window/window.h"

namespace tally::scheduler {

struct GraphNodeAccesses {
  Extent extent = Extent::kAnything;  // kAnything: keeps its place
  std::vector<Access> accesses;
};

struct GraphEdge {
  uint32_t from = 0;
  uint32_t to = 0;
  auto operator<=>(const GraphEdge&) const = default;
};

constexpr size_t kMostGraphNodes = 8192;  // 16 MB of bits
constexpr size_t kMostEdgesPerNode = 8;   // an edge costs about 50 ns on the GPU, a node in a row 0.4 us
constexpr size_t kNodesCompared = 256;

// Of a graph with these nodes and edges, by index. Nothing: it needs all the order that it has, it is too large, it
// would take too many edges, or it has a cycle.
std::optional<std::vector<GraphEdge>> TrueEdges(std::span<const GraphNodeAccesses> nodes,
                                                std::span<const GraphEdge> edges, size_t window = kNodesCompared);

}  // namespace tally::scheduler
