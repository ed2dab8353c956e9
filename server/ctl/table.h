// A table for people: columns as wide as their widest cell.
#pragma once

#include <string>
#include <vector>

namespace tally::cli {

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  // As many cells as the header.
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Lines end with \n. Columns in which every cell below the header is a number or a size are right-aligned.
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "0", "512 B", "1.5 KiB", "3.0 GiB".
std::string FormatBytes(unsigned long long bytes);
// "3s", "4m12s", "2h05m", "3d02h".
std::string FormatAge(unsigned long long nanoseconds);

}  // namespace tally::cli
