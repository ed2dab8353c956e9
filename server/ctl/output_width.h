// How wide what is printed may be.
#pragma once

#include <cstddef>
#include <limits>

namespace tally::cli {

inline constexpr size_t kAnyWidth = std::numeric_limits<size_t>::max();

// Columns of the terminal on stdout; without one what COLUMNS says, else any width.
size_t OutputWidth();

}  // namespace tally::cli
