#include "server/executor/issue/graph_picture.h"

#include <fmt/format.h>

#include <iterator>
#include <set>
#include <utility>

#include "base/graphviz.h"

namespace tally::server {
namespace {

const char* WordFor(NodeKind kind) {
  switch (kind) {
    case NodeKind::kKernel:
      return "kernel";
    case NodeKind::kFill:
      return "fill";
    case NodeKind::kCopy:
      return "copy";
    case NodeKind::kEmpty:
      return "empty";
  }
  return "?";
}

std::string LabelOf(const GraphOutline::Partition& partition, size_t number, size_t num_nodes) {
  std::string label = fmt::format("partition {}: {} node{}", number, num_nodes, num_nodes == 1 ? "" : "s");
  if (partition.is_alone) label += ", by itself";
  if (partition.duration_ns != 0) {
    label += fmt::format(", {:.1f} us", static_cast<double>(partition.duration_ns) / 1e3);
  }
  return label;
}

void DrawNodes(const GraphOutline& outline, const std::vector<std::vector<size_t>>& members, std::string* text) {
  for (size_t number = 0; number < members.size(); ++number) {
    fmt::format_to(std::back_inserter(*text), "  subgraph cluster_{} {{\n    label=\"{}\";\n", number,
                   LabelOf(outline.partitions[number], number, members[number].size()));
    for (const size_t index : members[number]) {
      const GraphOutline::Node& node = outline.nodes[index];
      const bool is_named = node.kind == NodeKind::kKernel && node.name < outline.names.size();
      fmt::format_to(std::back_inserter(*text), "    n{} [label=\"{}\"];\n", index,
                     is_named ? GraphvizLabel(outline.names[node.name]) : WordFor(node.kind));
    }
    *text += "  }\n";
  }
  for (const scheduler::GraphEdge& edge : outline.edges) {
    fmt::format_to(std::back_inserter(*text), "  n{} -> n{};\n", edge.from, edge.to);
  }
}

void DrawPartitions(const GraphOutline& outline, const std::vector<std::vector<size_t>>& members, std::string* text) {
  for (size_t number = 0; number < members.size(); ++number) {
    fmt::format_to(std::back_inserter(*text), "  p{} [label=\"{}\"];\n", number,
                   LabelOf(outline.partitions[number], number, members[number].size()));
  }
  std::set<std::pair<uint32_t, uint32_t>> drawn;
  for (const scheduler::GraphEdge& edge : outline.edges) {
    const std::pair between(outline.nodes[edge.from].partition, outline.nodes[edge.to].partition);
    if (between.first == between.second || !drawn.insert(between).second) continue;
    fmt::format_to(std::back_inserter(*text), "  p{} -> p{};\n", between.first, between.second);
  }
}

}  // namespace

std::string GraphPicture(const GraphOutline& outline) {
  std::vector<std::vector<size_t>> members(outline.partitions.size());
  for (size_t index = 0; index < outline.nodes.size(); ++index) {
    members[outline.nodes[index].partition].push_back(index);
  }
  std::string text = "digraph graph_in_partitions {\n  node [shape=box];\n";
  if (outline.nodes.size() <= kMostNodesDrawn) {
    DrawNodes(outline, members, &text);
  } else {
    DrawPartitions(outline, members, &text);
  }
  return text + "}\n";
}

}  // namespace tally::server
