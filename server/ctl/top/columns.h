// The columns of `tallyctl top`: what stands in them, in which order rows come, and which may be left out. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/ctl/top/model.h"

namespace tally::cli {

enum class TopColumn : uint8_t {
  kSession,
  kTenant,
  kPid,
  kUser,
  kClass,
  kGpu,
  kRank,
  kBusy,
  kMemory,
  kLaunches,
  kHeld,
  kLatency,
  kAge,
};
inline constexpr size_t kNumTopColumns = static_cast<size_t>(TopColumn::kAge) + 1;

struct TopColumnKind {
  const char* name;  // of --sort
  const char* header;
  int rank;       // see FitColumns
  size_t least;   // to what it may be cut; 0: it is not cut
  bool is_right;  // aligned
};
const TopColumnKind& KindOf(TopColumn column);

// Printable, whatever the tenant calls itself. "-": not known.
std::string CellOf(TopColumn column, const TopRow& row);

// Figures: the most first; names, classes and ids: in their order; `is_reversed`: the other way round. What is not
// known comes last in both. Rows of the same come by id.
void SortRows(TopColumn by, bool is_reversed, std::vector<TopRow>* rows);

// "0", "0.4", "87", "12.3k", "1.2M".
std::string FormatRate(double per_second);
// 0.1234 -> "12.3".
std::string FormatPercent(double share);

}  // namespace tally::cli
