#include "scheduler/window/true_edges.h"

#include <algorithm>
#include <bit>

#include "scheduler/window/ancestors.h"

namespace tally::scheduler {
namespace {

bool AnyWrites(const GraphNodeAccesses& node) {
  return std::ranges::any_of(node.accesses, [](const Access& access) { return Writes(access.kind); });
}

bool Conflict(const GraphNodeAccesses& a, const GraphNodeAccesses& b) {
  if (a.extent == Extent::kAnything || b.extent == Extent::kAnything) return true;
  if (a.extent == Extent::kReadsAnything && AnyWrites(b)) return true;
  if (b.extent == Extent::kReadsAnything && AnyWrites(a)) return true;
  return std::ranges::any_of(a.accesses, [&](const Access& of_a) {
    return std::ranges::any_of(b.accesses, [&](const Access& of_b) {
      return (Writes(of_a.kind) || Writes(of_b.kind)) && of_a.box.Overlaps(of_b.box);
    });
  });
}

// Node indices, each behind all that come before it. Fewer than there are: a cycle.
std::vector<uint32_t> InOrder(size_t num_nodes, const std::vector<std::vector<uint32_t>>& before) {
  std::vector<uint32_t> num_waiting_for(num_nodes);
  std::vector<std::vector<uint32_t>> behind(num_nodes);
  std::vector<uint32_t> order;
  order.reserve(num_nodes);
  for (uint32_t node = 0; node < num_nodes; ++node) {
    num_waiting_for[node] = static_cast<uint32_t>(before[node].size());
    for (const uint32_t other : before[node]) behind[other].push_back(node);
    if (before[node].empty()) order.push_back(node);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const uint32_t node : behind[order[i]]) {
      if (--num_waiting_for[node] == 0) order.push_back(node);
    }
  }
  return order;
}

}  // namespace

std::optional<std::vector<GraphEdge>> TrueEdges(std::span<const GraphNodeAccesses> nodes,
                                                std::span<const GraphEdge> edges, size_t window) {
  if (nodes.size() > kMostGraphNodes) return std::nullopt;
  std::vector<std::vector<uint32_t>> before(nodes.size());
  for (const GraphEdge& edge : edges) before[edge.to].push_back(edge.from);
  const std::vector<uint32_t> order = InOrder(nodes.size(), before);
  if (order.size() != nodes.size()) return std::nullopt;
  std::vector<uint32_t> position_of(nodes.size());
  for (uint32_t i = 0; i < order.size(); ++i) position_of[order[i]] = i;

  Ancestors had(nodes.size()), has(nodes.size());
  std::vector<GraphEdge> found;
  for (size_t position = 0; position < order.size(); ++position) {
    const uint32_t node = order[position];
    for (const uint32_t other : before[node]) had.Add(position, position_of[other]);
    const size_t window_begin = position / window * window;
    const uint64_t* const had_before = had.of(position);
    const uint64_t* const has_before = has.of(position);
    // From the nearest: what comes before that need not be looked at.
    for (size_t word = position / 64 + 1; word-- > 0;) {
      uint64_t left = had_before[word] & ~has_before[word];
      while (left != 0) {
        const auto bit = static_cast<size_t>(std::bit_width(left) - 1);
        const size_t other = word * 64 + bit;
        left &= ~(uint64_t{1} << bit);
        if (other >= window_begin && !Conflict(nodes[order[other]], nodes[node])) continue;
        if (found.size() == kMostEdgesPerNode * nodes.size()) return std::nullopt;
        found.push_back({order[other], node});
        has.Add(position, other);
        left &= ~has_before[word];
      }
    }
  }
  if (had == has) return std::nullopt;
  return found;
}

}  // namespace tally::scheduler
