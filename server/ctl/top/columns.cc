#include "server/ctl/top/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/printable.h"
#include "server/ctl/table.h"

namespace tally::cli {
namespace {

constexpr TopColumnKind kKinds[] = {
    {"session", "SESSION", 0, 0, true},   {"tenant", "TENANT", 0, 8, false}, {"pid", "PID", 6, 0, true},
    {"uid", "UID", 7, 0, true},           {"class", "CLASS", 3, 0, false},   {"gpu", "GPU", 5, 0, false},
    {"rank", "WT/LVL", 4, 0, true},       {"busy", "BUSY%", 0, 0, true},     {"memory", "MEMORY", 1, 0, true},
    {"launches", "LAUNCH/s", 2, 0, true}, {"held", "HELD/s", 3, 0, true},    {"latency", "LATENCY", 1, 0, false},
    {"age", "AGE", 8, 0, true},
};
static_assert(std::size(kKinds) == kNumTopColumns, "one row per enumerator, in its order");

std::string Optional(const std::optional<double>& figure, std::string (*format)(double)) {
  return figure ? format(*figure) : "-";
}

// "p99 1.85/2ms": what was seen last, and what is wanted.
std::string LatencyOf(const TopRow& row) {
  const size_t at = row.objective.find('=');
  if (at == std::string::npos) return "-";
  const std::string wanted = row.objective.substr(at + 1);
  std::string seen = "?";
  if (row.observed_ns > 0) {
    const auto observed = static_cast<double>(row.observed_ns);
    const double one_ns = wanted.ends_with("us")   ? 1e3
                          : wanted.ends_with("ms") ? 1e6
                          : wanted.ends_with("ns") ? 1
                                                   : 1e9;
    seen = observed < 1000 * one_ns ? fmt::format("{:.3g}", observed / one_ns) : FormatRate(observed / one_ns);
  }
  return fmt::format("{} {}/{}", row.objective.substr(0, at), seen, wanted);
}

// What a column is sorted by if it has figures; nothing: not known.
std::optional<double> FigureOf(TopColumn column, const TopRow& row) {
  switch (column) {
    case TopColumn::kRank:
      return row.rank ? std::optional<double>(*row.rank) : std::nullopt;
    case TopColumn::kBusy:
      return row.busy_share;
    case TopColumn::kMemory:
      return static_cast<double>(row.memory_bytes);
    case TopColumn::kLaunches:
      return row.launches_per_s;
    case TopColumn::kHeld:
      return row.held_per_s;
    case TopColumn::kLatency:
      if (row.observed_ns == 0) return std::nullopt;
      return static_cast<double>(row.observed_ns) /
             static_cast<double>(std::max<uint64_t>(ObjectiveNs(row.objective), 1));
    case TopColumn::kAge:
      return static_cast<double>(row.age_ns);
    default:
      return std::nullopt;
  }
}

bool HasFigures(TopColumn column) { return column >= TopColumn::kRank; }

// Of columns without figures: negative, 0, positive.
int Compare(TopColumn column, const TopRow& a, const TopRow& b) {
  const auto sign = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  switch (column) {
    case TopColumn::kTenant:
      return a.tenant.compare(b.tenant);
    case TopColumn::kPid:
      return sign(a.pid, b.pid);
    case TopColumn::kUser:
      return sign(a.uid, b.uid);
    case TopColumn::kGpu:
      return a.gpus.compare(b.gpus);
    case TopColumn::kClass:
      return sign(!a.is_high, !b.is_high);
    default:
      return 0;
  }
}

}  // namespace

const TopColumnKind& KindOf(TopColumn column) { return kKinds[static_cast<size_t>(column)]; }

std::string CellOf(TopColumn column, const TopRow& row) {
  switch (column) {
    case TopColumn::kSession:
      return (row.session_ids.size() == 1 ? fmt::format("{}", row.session_ids.front())
                                          : fmt::format("{} of", row.session_ids.size())) +
             (row.is_stale ? "?" : "");
    case TopColumn::kTenant:
      return Printable(row.tenant);
    case TopColumn::kPid:
      return row.pid == 0 ? "-" : fmt::format("{}", row.pid);
    case TopColumn::kUser:
      return fmt::format("{}", row.uid);
    case TopColumn::kClass:
      return row.is_high ? "high" : "best-effort";
    case TopColumn::kGpu:
      return row.gpus;
    case TopColumn::kRank:
      return row.rank ? fmt::format("{}", *row.rank) : "-";
    case TopColumn::kBusy:
      return Optional(row.busy_share, FormatPercent);
    case TopColumn::kMemory:
      return FormatBytes(row.memory_bytes);
    case TopColumn::kLaunches:
      return Optional(row.launches_per_s, FormatRate);
    case TopColumn::kHeld:
      return Optional(row.held_per_s, FormatRate);
    case TopColumn::kLatency:
      return Printable(LatencyOf(row));
    case TopColumn::kAge:
      return FormatAge(row.age_ns);
  }
  return "";
}

void SortRows(TopColumn by, bool is_reversed, std::vector<TopRow>* rows) {
  std::ranges::stable_sort(*rows, [&](const TopRow& a, const TopRow& b) {
    const uint64_t id_of_a = a.session_ids.front(), id_of_b = b.session_ids.front();
    if (by == TopColumn::kSession) return is_reversed ? id_of_a > id_of_b : id_of_a < id_of_b;
    if (HasFigures(by)) {
      const auto of_a = FigureOf(by, a), of_b = FigureOf(by, b);
      if (of_a.has_value() != of_b.has_value()) return of_a.has_value();
      if (of_a && *of_a != *of_b) return is_reversed ? *of_a < *of_b : *of_a > *of_b;
    } else if (const int order = Compare(by, a, b); order != 0) {
      return is_reversed ? order > 0 : order < 0;
    }
    return id_of_a < id_of_b;
  });
}

std::string FormatRate(double per_second) {
  if (per_second <= 0) return "0";
  if (per_second < 9.95) return fmt::format("{:.1f}", per_second);
  static constexpr const char* kUnits[] = {"", "k", "M", "G"};
  size_t unit = 0;
  while (per_second >= 999.5 && unit + 1 < std::size(kUnits)) {
    per_second /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f}{}", per_second, unit > 0 && per_second < 99.95 ? 1 : 0, kUnits[unit]);
}

std::string FormatPercent(double share) { return fmt::format("{:.1f}", share * 100); }

}  // namespace tally::cli
