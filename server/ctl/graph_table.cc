#include "server/ctl/graph_table.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "server/ctl/table.h"

namespace tally::cli {
namespace {

std::string MillisecondsText(uint64_t time_ns) {
  return time_ns == 0 ? "-" : fmt::format("{:.3f}", static_cast<double>(time_ns) / 1e6);
}

std::string MegabytesText(uint64_t num_bytes) {
  return num_bytes == 0 ? "-" : fmt::format("{:.3f}", static_cast<double>(num_bytes) / 1e6);
}

// Of its last launch. A session has graphs in partitions or spread ones.
const char* WayOf(const control::v1::Graph& graph) {
  if (!graph.why_whole().empty()) return "whole";
  if (graph.launches_spread() != 0) return "spread";
  return graph.launches_in_partitions() != 0 ? "partitions" : "whole";
}

std::string CountText(uint64_t count) { return count == 0 ? "-" : fmt::format("{}", count); }

std::string IdOf(const control::v1::Graph& graph) { return fmt::format("{}.{}", graph.session_id(), graph.number()); }

}  // namespace

std::optional<GraphName> ParseGraphName(const std::string& text) {
  GraphName name;
  const char* const end = text.data() + text.size();
  const auto session = std::from_chars(text.data(), end, name.session_id);
  if (session.ec != std::errc() || session.ptr == end || *session.ptr != '.') return std::nullopt;
  const auto number = std::from_chars(session.ptr + 1, end, name.number);
  if (number.ec != std::errc() || number.ptr != end) return std::nullopt;
  return name;
}

std::string GraphTable(const control::v1::ListGraphsResponse& response) {
  Table table({"GRAPH", "NODES", "PARTITIONS", "STREAMS", "GPUS", "LAUNCHES", "IN PARTITIONS", "WHOLE MS",
               "IN PARTITIONS MS", "SPREAD", "SPREAD MS", "MOVED MB", "WAY", "WHY WHOLE"});
  for (const control::v1::Graph& graph : response.graphs()) {
    table.AddRow({IdOf(graph), fmt::format("{}", graph.nodes()), CountText(graph.partitions()),
                  CountText(graph.streams()), fmt::format("{}", graph.gpus()), fmt::format("{}", graph.launches()),
                  CountText(graph.launches_in_partitions()), MillisecondsText(graph.whole_ns()),
                  MillisecondsText(graph.in_partitions_ns()), CountText(graph.launches_spread()),
                  MillisecondsText(graph.spread_ns()), MegabytesText(graph.moved_bytes()), WayOf(graph),
                  graph.why_whole().empty() ? "-" : graph.why_whole()});
  }
  return response.graphs().empty() ? "" : table.ToString();
}

nlohmann::json GraphJson(const control::v1::ListGraphsResponse& response) {
  nlohmann::json rows = nlohmann::json::array();
  for (const control::v1::Graph& graph : response.graphs()) {
    rows.push_back({{"id", IdOf(graph)},
                    {"session_id", graph.session_id()},
                    {"nodes", graph.nodes()},
                    {"partitions", graph.partitions()},
                    {"streams", graph.streams()},
                    {"gpus", graph.gpus()},
                    {"launches", graph.launches()},
                    {"launches_in_partitions", graph.launches_in_partitions()},
                    {"whole_ns", graph.whole_ns()},
                    {"in_partitions_ns", graph.in_partitions_ns()},
                    {"launches_spread", graph.launches_spread()},
                    {"spread_ns", graph.spread_ns()},
                    {"moved_bytes", graph.moved_bytes()},
                    {"why_whole", graph.why_whole()}});
  }
  return rows;
}

}  // namespace tally::cli
