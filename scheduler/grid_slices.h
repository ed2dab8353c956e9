// GridSlices: a grid cut into boxes of blocks, each small enough to be a launch of its own.
//
// The boxes cover the grid, do not overlap, and come in the order of their first block. Whole planes are cut first,
// then rows, then blocks in a row, so that every slice is one box: its blocks need an addition to know who they are and
// no division. At most `degree` boxes; as equal in size as that allows.
//
// Source: Tally, section 4 (kernel slicing). Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace tally::scheduler {

using GridSize = std::array<uint32_t, 3>;

struct GridBox {
  GridSize first{};
  GridSize size{};
};

class GridSlices {
 public:
  // Every dimension of `grid` is at least 1, as is `degree`.
  GridSlices(GridSize grid, uint32_t degree) : grid_(grid) {
    uint32_t left = std::max<uint32_t>(degree, 1);
    for (int axis = 2; axis >= 0; --axis) {
      const auto i = static_cast<size_t>(axis);
      num_parts_[i] = std::min(left, grid_[i]);
      left /= num_parts_[i];
    }
  }

  uint64_t count() const { return uint64_t{num_parts_[0]} * num_parts_[1] * num_parts_[2]; }

  // The box of that number, below count().
  GridBox operator[](uint64_t index) const {
    GridBox box;
    for (size_t axis = 0; axis < 3; ++axis) {
      const auto part = static_cast<uint32_t>(index % num_parts_[axis]);
      index /= num_parts_[axis];
      const uint64_t begin = uint64_t{grid_[axis]} * part / num_parts_[axis];
      const uint64_t end = uint64_t{grid_[axis]} * (part + 1) / num_parts_[axis];
      box.first[axis] = static_cast<uint32_t>(begin);
      box.size[axis] = static_cast<uint32_t>(end - begin);
    }
    return box;
  }

 private:
  GridSize grid_;
  GridSize num_parts_{};
};

}  // namespace tally::scheduler
