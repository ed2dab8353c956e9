// Which columns of a table are shown where there is no room for all of them, and how wide. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tally::cli {

struct ColumnNeed {
  size_t width = 0;  // of its longest cell
  size_t least = 0;  // to what it may be cut; `width`: it is not cut
  int rank = 0;      // the highest is left out first; 0: never left out
};

// The width of each column, 0 for those that are left out, so that all of them with `gap` blanks between two take at
// most `available`. What must stay may be wider than that: lines are then cut.
std::vector<size_t> FitColumns(std::span<const ColumnNeed> needs, size_t gap, size_t available);

}  // namespace tally::cli
