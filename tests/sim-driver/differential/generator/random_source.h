// Numbers that one seed determines, on every machine and with every standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tally::differential {

class RandomSource {
 public:
  explicit RandomSource(uint64_t seed) : state_(seed) {}

  uint64_t Next() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint32_t Next32() { return static_cast<uint32_t>(Next() >> 32); }
  // Below `count`, which is not zero.
  uint32_t Below(uint32_t count) { return static_cast<uint32_t>((Next() >> 32) * count >> 32); }
  uint32_t Between(uint32_t first, uint32_t last) { return first + Below(last - first + 1); }
  bool Chance(uint32_t percent) { return Below(100) < percent; }
  template <typename T>
  T Pick(std::initializer_list<T> choices) {
    return choices.begin()[Below(static_cast<uint32_t>(choices.size()))];
  }
  template <typename T>
  const T& Pick(const std::vector<T>& choices) {
    return choices[Below(static_cast<uint32_t>(choices.size()))];
  }

 private:
  uint64_t state_;
};

}  // namespace tally::differential
