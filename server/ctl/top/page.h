// The page of `tallyctl top`: text in pieces with an ink each, cut to the terminal's size. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/ctl/top/keys.h"
#include "server/ctl/top/model.h"

namespace tally::cli {

// What a piece means; the screen decides how that looks.
enum class Ink : uint8_t { kPlain, kTitle, kHeader, kSortedHeader, kSelected, kHigh, kGood, kWarning, kBad };

struct Piece {
  std::string text;
  Ink ink = Ink::kPlain;
  bool operator==(const Piece&) const = default;
};
using PageLine = std::vector<Piece>;

struct PageSize {
  size_t columns = 80;
  size_t lines = 24;
  bool operator==(const PageSize&) const = default;
};

// The whole page, `size.lines` lines at most, none longer than `size.columns`. `clock` is the time of day, `problem`
// why the figures are not of now. Notes in `state` how many rows there was room for, and scrolls.
std::vector<PageLine> PageOf(const TopView& view, const PageSize& size, const std::string& clock,
                             const std::string& problem, TopState* state);

// For logs: everything, without a title bar, a selected row or keys; as wide as `columns` allows.
std::string SnapshotOf(const TopView& view, size_t columns, const std::string& clock);

}  // namespace tally::cli
