// Box: device memory that a launch reads or writes: rows of equal length at equal distances (its read or write
// segment).
//
//      begin                         pitch: from row to row
//      |#######..........|           row_bytes: the part of it that belongs to the box
//      |#######..........|
//      |#######|                     end: behind the last row's last byte
//
// One dimension is not enough: the tiles of a matrix interleave in memory, so as plain ranges they would all overlap.
// A box of one row, or whose rows touch, is a plain range. Bytes, all of them; addresses are compared, never used.
//
// Whether two boxes overlap is exact if one is a plain range, or if their pitches agree. Otherwise each is compared
// with the range around the other: the answer may be yes where it is no, never the reverse. Constant time; a division
// or two if a box has several rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace tally::scheduler {

class Box {
 public:
  // Nothing if there is not one byte in it, or if its last one lies beyond 64 bits: such a box is never made smaller.
  static constexpr std::optional<Box> Rows(uint64_t address, uint64_t row_bytes, uint64_t rows, uint64_t pitch) {
    uint64_t before_last = 0;  // from the first row to the last
    uint64_t length = 0;
    uint64_t end = 0;
    if (row_bytes == 0 || rows == 0) return std::nullopt;
    if (__builtin_mul_overflow(rows - 1, pitch, &before_last)) return std::nullopt;
    if (__builtin_add_overflow(before_last, row_bytes, &length)) return std::nullopt;
    if (__builtin_add_overflow(address, length, &end)) return std::nullopt;
    // Rows that touch or overlap leave no gaps.
    if (rows == 1 || pitch <= row_bytes) return Box(address, end, length, length);
    return Box(address, end, row_bytes, pitch);
  }
  static constexpr std::optional<Box> Range(uint64_t address, uint64_t bytes) { return Rows(address, bytes, 1, bytes); }

  constexpr uint64_t begin() const { return begin_; }
  constexpr uint64_t end() const { return end_; }
  constexpr uint64_t row_bytes() const { return row_bytes_; }
  constexpr uint64_t pitch() const { return pitch_; }
  constexpr uint64_t rows() const { return is_range() ? 1 : (end_ - begin_ - row_bytes_) / pitch_ + 1; }
  constexpr uint64_t length() const { return end_ - begin_; }
  // One row: no gaps.
  constexpr bool is_range() const { return row_bytes_ == pitch_; }
  constexpr bool operator==(const Box&) const = default;

  constexpr bool Overlaps(const Box& other) const {
    if (begin_ >= other.end_ || other.begin_ >= end_) return false;
    if (is_range() && other.is_range()) return true;
    if (pitch_ == other.pitch_) return begin_ <= other.begin_ ? MeetsLater(other) : other.MeetsLater(*this);
    return MeetsRange(other.begin_, other.end_) && other.MeetsRange(begin_, end_);
  }

  // Every byte of `other` is in this one. May say no where it is yes, if neither is a plain range and pitches differ.
  constexpr bool Covers(const Box& other) const {
    if (other.begin_ < begin_ || other.end_ > end_) return false;
    if (is_range()) return true;
    const uint64_t width = other.pitch_ == pitch_ ? other.row_bytes_ : other.length();
    const uint64_t column = (other.begin_ - begin_) % pitch_;
    return column < row_bytes_ && width <= row_bytes_ - column;
  }

 private:
  constexpr Box(uint64_t begin, uint64_t end, uint64_t row_bytes, uint64_t pitch)
      : begin_(begin), end_(end), row_bytes_(row_bytes), pitch_(pitch) {}

  // `later` begins at or behind this one's begin, before its end, at the same pitch. Its first row is the one that has
  // most rows of this box beside it, so it alone decides: it meets the row that it begins in, or the one after that.
  constexpr bool MeetsLater(const Box& later) const {
    const uint64_t distance = later.begin_ - begin_;
    const uint64_t column = distance % pitch_;
    if (column < row_bytes_) return true;
    const uint64_t to_next_row = pitch_ - column;
    return later.row_bytes_ > to_next_row && to_next_row < length() - distance;
  }
  // The range overlaps the one around this box.
  constexpr bool MeetsRange(uint64_t begin, uint64_t end) const {
    if (is_range()) return true;
    const uint64_t first = std::max(begin, begin_);
    const uint64_t column = (first - begin_) % pitch_;
    if (column < row_bytes_) return true;
    return pitch_ - column < std::min(end, end_) - first;  // the next row begins within
  }

  uint64_t begin_;
  uint64_t end_;
  uint64_t row_bytes_;
  uint64_t pitch_;  // of a plain range: row_bytes_
};

}  // namespace tally::scheduler
