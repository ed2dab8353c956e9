// Task graphs of seven shapes, and random ones: who comes behind whom, without what the tasks do.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace taskgraph {

// By task: those that it comes behind, all with smaller numbers.
using Shape = std::vector<std::vector<uint32_t>>;

inline const std::vector<std::string>& ShapeNames() {
  static const std::vector<std::string> names = {"chain",    "independent", "fork-join", "wavefront",
                                                 "tree-sum", "butterfly",   "random"};
  return names;
}

// Of about `count` tasks: as many as make the shape whole, but not more. Empty: there is no such shape.
inline Shape ShapeOf(const std::string& name, uint32_t count, uint32_t seed = 1) {
  Shape shape(count);
  if (name == "chain") {
    for (uint32_t i = 1; i < count; ++i) shape[i] = {i - 1};
  } else if (name == "independent") {
    return shape;
  } else if (name == "fork-join") {
    // One, eight side by side, one, eight, ...
    for (uint32_t i = 1; i < count; ++i) {
      const uint32_t place = i % 9, begin = i - place;
      if (place != 0) {
        shape[i] = {begin};
      } else {
        for (uint32_t k = i - 8; k < i; ++k) shape[i].push_back(k);
      }
    }
  } else if (name == "wavefront") {
    // A square grid, each behind the ones above and to the left.
    uint32_t side = 1;
    while ((side + 1) * (side + 1) <= count) ++side;
    shape.resize(side * side);
    for (uint32_t i = 0; i < side * side; ++i) {
      if (i >= side) shape[i].push_back(i - side);
      if (i % side != 0) shape[i].push_back(i - 1);
    }
  } else if (name == "tree-sum") {
    // Leaves first, then each behind two.
    const uint32_t leaves = (count + 1) / 2;
    shape.resize(2 * leaves - 1);
    for (uint32_t i = leaves; i < 2 * leaves - 1; ++i) shape[i] = {2 * (i - leaves), 2 * (i - leaves) + 1};
  } else if (name == "butterfly") {
    // Stages of eight, each behind the same place and its partner of the stage before.
    shape.resize(count / 8 * 8);
    for (uint32_t i = 8; i < shape.size(); ++i) {
      const uint32_t stage = i / 8, place = i % 8, before = (stage - 1) * 8;
      shape[i] = {before + place, before + (place ^ (1u << (stage % 3)))};
    }
  } else if (name == "random") {
    std::mt19937 random(seed);
    for (uint32_t i = 1; i < count; ++i) {
      for (uint32_t k = random() % 4; k != 0; --k) {
        const uint32_t other = i - 1 - random() % (i < 64 ? i : 64);
        bool is_there = false;
        for (const uint32_t known : shape[i]) is_there |= known == other;
        if (!is_there) shape[i].push_back(other);
      }
    }
  } else {
    return {};
  }
  return shape;
}

}  // namespace taskgraph
