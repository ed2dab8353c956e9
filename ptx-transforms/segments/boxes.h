// From an address as a sum over variables to rows of bytes.
#pragma once

#include <optional>
#include <vector>

#include "ptx-transforms/segments/launch_values.h"

namespace tally::ptx_transforms {

// `rows` runs of `row_bytes` bytes, one each `pitch` bytes, from `address` on. Never wraps.
struct SegmentBox {
  uint64_t address = 0;
  uint64_t row_bytes = 0;
  uint64_t rows = 1;
  uint64_t pitch = 0;  // at least row_bytes; equal to it if there is one row

  uint64_t end() const { return address + (rows - 1) * pitch + row_bytes; }
  bool operator==(const SegmentBox&) const = default;
  auto operator<=>(const SegmentBox&) const = default;
};

// Every byte of `bytes` bytes at `address`, for all values of the variables for which each of `constraints` is at most
// zero. Empty: there are no such values. Nothing: it is not bounded, or leaves the address space. At most a few boxes:
// what would be more becomes fewer, wider ones.
std::optional<std::vector<SegmentBox>> BoxesOf(const LaunchValues& values, const Affine& address,
                                               const WideInteger& bytes, const std::vector<Affine>& constraints);

}  // namespace tally::ptx_transforms
