// A table for people: columns as wide as their widest cell.
#pragma once

#include <string>
#include <vector>

#include "server/ctl/output_width.h"

namespace tally::cli {

// What becomes of a column where there is no room for all: see FitColumns.
struct ColumnRank {
  int rank = 0;
  size_t least = 0;  // 0: it is not cut
};

class Table {
 public:
  // Without ranks every column stays.
  explicit Table(std::vector<std::string> header, std::vector<ColumnRank> ranks = {})
      : rows_{std::move(header)}, ranks_(std::move(ranks)) {
    ranks_.resize(rows_.front().size());
  }
  // As many cells as the header.
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Lines end with \n. Columns in which every cell below the header is a number or a size are right-aligned.
  std::string ToString(size_t width = kAnyWidth) const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<ColumnRank> ranks_;
};

// "0", "512 B", "1.5 KiB", "3.0 GiB".
std::string FormatBytes(unsigned long long bytes);
// "3s", "4m12s", "2h05m", "3d02h".
std::string FormatAge(unsigned long long nanoseconds);

}  // namespace tally::cli
