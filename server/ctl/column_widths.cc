#include "server/ctl/column_widths.h"

#include <algorithm>

namespace tally::cli {

std::vector<size_t> FitColumns(std::span<const ColumnNeed> needs, size_t gap, size_t available) {
  std::vector<size_t> widths;
  for (const ColumnNeed& need : needs) widths.push_back(std::min(need.least, need.width));
  const auto taken = [&] {
    size_t sum = 0;
    for (const size_t width : widths) sum += width == 0 ? 0 : width + gap;
    return sum == 0 ? 0 : sum - gap;
  };
  while (taken() > available) {
    size_t worst = needs.size();
    for (size_t i = 0; i < needs.size(); ++i) {
      if (widths[i] > 0 && needs[i].rank > 0 && (worst == needs.size() || needs[i].rank >= needs[worst].rank))
        worst = i;
    }
    if (worst == needs.size()) return widths;
    widths[worst] = 0;
  }
  size_t left = available - taken();
  for (size_t i = 0; i < needs.size(); ++i) {
    if (widths[i] == 0) continue;
    const size_t more = std::min(left, needs[i].width - widths[i]);
    widths[i] += more;
    left -= more;
  }
  return widths;
}

}  // namespace tally::cli
