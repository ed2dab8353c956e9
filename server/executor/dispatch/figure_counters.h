// Figures of one session while they are counted: any part that knows the session may count any row of
// proto/control/session_figures.h. Several parts have one each, and Session::Snapshot adds them up.
//
// Thread-safe. Relaxed: each figure is right by itself; two of them may be of different moments.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "proto/control/session_figures.h"

namespace tally::server {

class FigureCounters {
 public:
  // Returns what it was before. `entry`: of rows that have several (control::FigureEntries).
  uint64_t Add(control::Figure figure, uint64_t amount = 1, size_t entry = 0) {
    return values_[figure.place() + entry].fetch_add(amount, std::memory_order_relaxed);
  }
  void Add(control::Figure figure, std::chrono::nanoseconds time) { Add(figure, static_cast<uint64_t>(time.count())); }
  // What one part alone knows, of rows that are no counters.
  void Set(control::Figure figure, uint64_t value) { values_[figure.place()].store(value, std::memory_order_relaxed); }

  uint64_t operator[](control::Figure figure) const { return values_[figure.place()].load(std::memory_order_relaxed); }
  void AddTo(control::SessionFigures& sum) const {
    for (size_t i = 0; i < values_.size(); ++i) sum.values[i] += values_[i].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<uint64_t>, control::kNumFigureValues> values_{};
};

}  // namespace tally::server
