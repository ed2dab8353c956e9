#include "server/ctl/window_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "proto/control/session_fields.h"
#include "proto/control/window_mode.h"
#include "server/ctl/table.h"

namespace tally::cli {
namespace {

using control::Figure;
using control::v1::Session;

// Of the barriers of a program, those that matter.
constexpr size_t kMostReasons = 4;

uint64_t FigureIn(const Session& session, const std::string& key) {
  const auto found = session.figures().find(key);
  return found == session.figures().end() ? 0 : found->second;
}

// Those entries of a row that are not 0, by name, the most frequent first.
std::vector<std::pair<std::string, uint64_t>> EntriesOf(const Session& session, Figure figure) {
  std::vector<std::pair<std::string, uint64_t>> entries;
  for (const char* name : control::EntryNames(figure.row().entries)) {
    const uint64_t count = FigureIn(session, control::EntryKey(figure.row().name, name));
    if (count != 0) entries.emplace_back(name, count);
  }
  std::ranges::stable_sort(entries, [](const auto& a, const auto& b) { return a.second > b.second; });
  return entries;
}

std::string ShareText(uint64_t part, uint64_t whole) {
  if (part == 0 || whole == 0) return "-";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string RatioText(uint64_t dividend, uint64_t divisor) {
  if (dividend == 0 || divisor == 0) return "-";
  return fmt::format("{:.2f}", static_cast<double>(dividend) / static_cast<double>(divisor));
}

// "C0 75.0 %, C1 9.0 %"
std::string SharesText(const Session& session, Figure figure, uint64_t whole, size_t most) {
  std::string text;
  size_t count = 0;
  for (const auto& [name, launches] : EntriesOf(session, figure)) {
    if (count++ == most) return text + ", ...";
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, ShareText(launches, whole));
  }
  return text.empty() ? "-" : text;
}

bool HasWindow(const Session& session) {
  return !session.window().empty() && session.window() != control::NameOf(control::WindowMode::kOff);
}

}  // namespace

std::string WindowTable(const control::v1::ListSessionsResponse& response) {
  Table table({"SESSION", "TENANT", "MODE", "LAUNCHES", "HELD", "IN GRAPHS", "TWINS", "COMPARED", "PARALLEL",
               "RAW ONLY", "GAIN", "CLASSES", "WHY BARRIER"});
  bool is_empty = true;
  for (const Session& session : response.sessions()) {
    if (!HasWindow(session)) continue;
    is_empty = false;
    const auto of = [&](const char* figure) { return FigureIn(session, figure); };
    const uint64_t launches = of("window_classes") + of("window_barriers");
    table.AddRow({fmt::format("{}", session.id()), session.tenant(), session.window(), fmt::format("{}", launches),
                  ShareText(of("window_held"), launches), ShareText(of("window_in_graphs"), launches),
                  ShareText(of("window_twin_launches"), of("window_twin_launches") + of("window_twins_slower")),
                  ShareText(of("window_compared"), of("window_work")), RatioText(of("window_work"), of("window_chain")),
                  RatioText(of("window_work"), of("window_chain_read_after_write")),
                  RatioText(of("window_in_order_ns"), of("window_in_graphs_ns")),
                  SharesText(session, "window_classes", launches, std::size(control::kWindowClasses)),
                  SharesText(session, "window_barriers", launches, kMostReasons)});
  }
  return is_empty ? "" : table.ToString();
}

nlohmann::json WindowJson(const control::v1::ListSessionsResponse& response) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Session& session : response.sessions()) {
    if (!HasWindow(session)) continue;
    nlohmann::json row = {{"id", session.id()}, {"tenant", session.tenant()}, {"mode", session.window()}};
    for (const Figure figure : control::kAllFigures) {
      const std::string name = figure.row().name;
      constexpr std::string_view kPrefix = "window_";
      if (!name.starts_with(kPrefix)) continue;
      nlohmann::json& value = row[name.substr(kPrefix.size())];
      if (control::EntryNames(figure.row().entries).empty()) {
        value = FigureIn(session, name);
        continue;
      }
      value = nlohmann::json::object();
      for (const auto& [entry, count] : EntriesOf(session, figure)) value[entry] = count;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string ShapeTable(const control::v1::ListWindowShapesResponse& response) {
  Table table({"SESSION", "LAUNCHES", "LEVELS", "TRACKS", "USES", "IN ORDER US", "GRAPH US", "GAIN", "WAY"});
  const auto microseconds = [](uint64_t time_ns) {
    return time_ns == 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(time_ns) / 1e3);
  };
  for (const control::v1::WindowShape& shape : response.shapes()) {
    table.AddRow({fmt::format("{}", shape.session_id()), fmt::format("{}", shape.launches()),
                  fmt::format("{}", shape.levels()), fmt::format("{}", shape.tracks()), fmt::format("{}", shape.uses()),
                  microseconds(shape.in_order_ns()), microseconds(shape.graph_ns()),
                  RatioText(shape.in_order_ns(), shape.graph_ns()), shape.way()});
  }
  return response.shapes().empty() ? "" : table.ToString();
}

nlohmann::json ShapeJson(const control::v1::ListWindowShapesResponse& response) {
  nlohmann::json rows = nlohmann::json::array();
  for (const control::v1::WindowShape& shape : response.shapes()) {
    rows.push_back({{"session_id", shape.session_id()},
                    {"launches", shape.launches()},
                    {"levels", shape.levels()},
                    {"tracks", shape.tracks()},
                    {"uses", shape.uses()},
                    {"in_order_ns", shape.in_order_ns()},
                    {"graph_ns", shape.graph_ns()},
                    {"way", shape.way()}});
  }
  return rows;
}

}  // namespace tally::cli
