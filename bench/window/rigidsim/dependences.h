// Which launches of a list must wait for which, from the segments that they declare.
#pragma once

#include <algorithm>
#include <vector>

#include "bench/window/rigidsim/launch.h"

namespace rigidsim {

inline bool Overlap(const std::vector<Segment>& a, const std::vector<Segment>& b) {
  for (const Segment& x : a) {
    for (const Segment& y : b) {
      if (x.Overlaps(y)) return true;
    }
  }
  return false;
}
struct Hazards {
  bool raw, war, waw;
  bool Any() const { return raw || war || waw; }
};
inline Hazards HazardsBetween(const Declared& earlier, const Declared& later) {
  return {Overlap(earlier.writes, later.reads), Overlap(earlier.reads, later.writes),
          Overlap(earlier.writes, later.writes)};
}

// Over one list or, added up, many.
struct Parallelism {
  double launches = 0, levels = 0, levels_raw_only = 0;
  double raw = 0, war = 0, waw = 0;  // pairs of launches; a pair may have several hazards
  int widest = 0;                    // launches of the same level

  void Add(const Parallelism& o, double times) {
    launches += times * o.launches, levels += times * o.levels, levels_raw_only += times * o.levels_raw_only;
    raw += times * o.raw, war += times * o.war, waw += times * o.waw;
    widest = std::max(widest, o.widest);
  }
  double Mean() const { return levels > 0 ? launches / levels : 0; }
  double MeanRawOnly() const { return levels_raw_only > 0 ? launches / levels_raw_only : 0; }
};

// A launch's level: one more than the highest of those that it waits for.
inline Parallelism Analyse(const std::vector<Launch>& list) {
  Parallelism p;
  p.launches = static_cast<double>(list.size());
  std::vector<int> level(list.size(), 1), level_raw(list.size(), 1), width(list.size() + 1, 0);
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      const Hazards h = HazardsBetween(list[k].declared, list[i].declared);
      if (h.Any()) level[i] = std::max(level[i], level[k] + 1);
      if (h.raw) level_raw[i] = std::max(level_raw[i], level_raw[k] + 1);
      p.raw += h.raw, p.war += h.war, p.waw += h.waw;
    }
    p.widest = std::max(p.widest, ++width[static_cast<size_t>(level[i])]);
    p.levels = std::max<double>(p.levels, level[i]);
    p.levels_raw_only = std::max<double>(p.levels_raw_only, level_raw[i]);
  }
  return p;
}

}  // namespace rigidsim
