#include "base/nearest_word.h"

#include <algorithm>

namespace tally {

size_t EditDistance(std::string_view one, std::string_view other) {
  // Row i: from the first i letters of `one`, that before it, and that before that (for exchanged neighbours).
  std::vector<size_t> row(other.size() + 1), before(other.size() + 1), earlier;
  for (size_t j = 0; j <= other.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= one.size(); ++i) {
    earlier = before;
    before = row;
    row[0] = i;
    for (size_t j = 1; j <= other.size(); ++j) {
      const size_t replaced = before[j - 1] + (one[i - 1] == other[j - 1] ? 0 : 1);
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, replaced});
      const bool is_exchanged = i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
      if (is_exchanged) row[j] = std::min(row[j], earlier[j - 2] + 1);
    }
  }
  return row.back();
}

std::string NearestWord(std::string_view typed, const std::vector<std::string>& words) {
  std::string nearest;
  size_t least = std::max<size_t>(1, typed.size() / 3) + 1;
  for (const std::string& word : words) {
    const size_t distance = EditDistance(typed, word);
    if (distance >= least) continue;
    least = distance;
    nearest = word;
  }
  return nearest;
}

}  // namespace tally
