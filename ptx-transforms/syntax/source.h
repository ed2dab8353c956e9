// Where a node came from: byte ranges of the PTX text that the Module owns, and line and column for people.
#pragma once

#include <cstdint>
#include <string>

namespace tally::ptx_transforms {

// Line and column of a byte, both counted from 1; a tab is one column. Line 0: no position (a node made by a pass).
struct SourcePosition {
  uint32_t line = 0;
  uint32_t column = 0;

  // "LINE:COL", as used in "ptx:LINE:COL: ...".
  std::string ToString() const;
  bool operator==(const SourcePosition&) const = default;
};

// Half-open byte range of the source text. begin == end: no text (a part made by a pass).
struct TextRange {
  uint32_t begin = 0;
  uint32_t end = 0;

  bool empty() const { return begin == end; }
  uint32_t size() const { return end - begin; }
};

// A node's place in the source. [leading, begin) is the white space and comments between the token before the node and
// the node itself; [begin, end) is its text. The leading parts and texts of all nodes tile the source without a gap,
// which is what makes parse -> print byte-stable.
struct SourceSpan {
  uint32_t leading = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
  SourcePosition position;  // of `begin`

  bool empty() const { return begin == end; }
  TextRange text() const { return {begin, end}; }
};

}  // namespace tally::ptx_transforms
