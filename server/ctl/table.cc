#include "server/ctl/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "server/ctl/column_widths.h"

namespace tally::cli {
namespace {

bool IsNumeric(const std::string& cell) {
  return !cell.empty() && std::isdigit(static_cast<unsigned char>(cell.front())) != 0;
}

}  // namespace

std::string Table::ToString(size_t width) const {
  const size_t num_columns = rows_.front().size();
  std::vector<ColumnNeed> needs(num_columns);
  std::vector<bool> is_numeric(num_columns, rows_.size() > 1);
  for (size_t row = 0; row < rows_.size(); ++row) {
    for (size_t column = 0; column < num_columns; ++column) {
      needs[column].width = std::max(needs[column].width, rows_[row][column].size());
      if (row > 0 && !IsNumeric(rows_[row][column])) is_numeric[column] = false;
    }
  }
  for (size_t column = 0; column < num_columns; ++column) {
    needs[column].rank = ranks_[column].rank;
    needs[column].least = ranks_[column].least == 0 ? needs[column].width : ranks_[column].least;
  }
  constexpr size_t kGap = 2;
  const std::vector<size_t> widths = FitColumns(needs, kGap, width);
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t column = 0; column < num_columns; ++column) {
      if (widths[column] == 0) continue;
      if (!line.empty()) line.append(kGap, ' ');
      line += is_numeric[column] ? fmt::format("{:>{}}", row[column], widths[column])
                                 : fmt::format("{:<{}.{}}", row[column], widths[column], widths[column]);
    }
    line.resize(std::min(line.size(), width));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string FormatBytes(unsigned long long bytes) {
  if (bytes == 0) return "0";
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  auto size = static_cast<double>(bytes);
  while (size >= 1023.95 && unit + 1 < std::size(kUnits)) {
    size /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", size, kUnits[unit]);
}

std::string FormatAge(unsigned long long nanoseconds) {
  const unsigned long long seconds = nanoseconds / 1'000'000'000;
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return fmt::format("{}m{:02}s", seconds / 60, seconds % 60);
  if (seconds < 86400) return fmt::format("{}h{:02}m", seconds / 3600, seconds / 60 % 60);
  return fmt::format("{}d{:02}h", seconds / 86400, seconds / 3600 % 24);
}

}  // namespace tally::cli
