// Ancestors: which nodes of a graph come before which, by their positions in an order of it. A bit for each pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tally::scheduler {

class Ancestors {
 public:
  explicit Ancestors(size_t count) : num_words_((count + 63) / 64), words_(count * num_words_) {}
  size_t num_words() const { return num_words_; }
  // A bit for each position.
  uint64_t* of(size_t position) { return words_.data() + position * num_words_; }
  // `before`, and all that come before it; its own must be complete.
  void Add(size_t position, size_t before) {
    uint64_t* const row = of(position);
    const uint64_t* const implied = of(before);
    // It has none behind its own position.
    for (size_t word = 0; word <= before / 64; ++word) row[word] |= implied[word];
    row[before / 64] |= uint64_t{1} << before % 64;
  }
  bool operator==(const Ancestors&) const = default;

 private:
  size_t num_words_;
  std::vector<uint64_t> words_;
};

}  // namespace tally::scheduler
