// A hash of words, one joined after another: where a table has its place for them. Whoever looks there compares what it
// finds; collisions can be made on purpose.
#pragma once

#include <cstdint>

namespace tally {

constexpr uint64_t Mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 32);
}

}  // namespace tally
