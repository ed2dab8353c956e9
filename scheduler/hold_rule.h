// HoldRule: for how long to hold the GPU after high-priority work has ended, in case more of it comes.
//
// When that work ends the GPU turns to best-effort work, and what comes next pays for a switch. Held, the GPU waits for
// it instead, and best-effort work loses that time. After a gap g each hold h would have cost, in best-effort time:
//
//      came while held        g <= h    what best-effort work would have got of the gap:  max(0, g - loss)
//      came after that        g >  h    weight x switch, and what of the gap was held instead of used
//      not held               h =  0    weight x switch, however short the gap was
//
// `loss` is what switching there and back takes away from best-effort work. So a gap says for each of a few holds what
// it would have cost, whatever was done. The rule sums that up, old gaps counting less, and takes the cheapest. A
// distribution of gaps is not kept: these sums are all that the choice needs of one.
//
// A late request makes others late that come meanwhile: at a load of u, requests that come at random, 1 / (1 - u) of
// them in all. So the weight of a switch rises with the load, switches that were paid for included. Where they leave a
// service no time for its own work, it is held through as many of its gaps as end that, and best-effort work has the
// others.
//
// What was learned may be wrong from one gap to the next. So a purse bounds what all choices together may lose against
// never holding, on any gaps whatever: `purse` + `tithe` x the time that passed + the loss of one gap. It is filled by
// the tithe and by choices that paid, up to `purse`; while it is empty nothing is held.
//
// Not thread-safe. No clock: the caller gives the times. 16 holds, one pass over them per gap, no allocation.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

#include "base/clock.h"

namespace tally::scheduler {

class HoldRule {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  struct Config {
    // What the work that comes pays for a switch. Both are those of H100s and H200s (docs/driver-waits.md).
    Nanoseconds switch_time = std::chrono::microseconds(200);
    // What best-effort work loses of a gap in which it gets the GPU.
    Nanoseconds loss = std::chrono::microseconds(180);
    // How much best-effort time a moment of one request's latency is worth.
    double weight = 1;
    Nanoseconds purse = std::chrono::milliseconds(20);
    double tithe = 0.01;
  };
  static constexpr size_t kNumHolds = 16;
  // None, 20 us, and from there to 2.5 ms by a factor of 1.41.
  static Nanoseconds HoldAt(size_t index);

  explicit HoldRule(Config config) : config_(config), purse_ns_(Count(config.purse)) {}

  static constexpr double kHighestLoad = 0.9;
  // What a gap or a busy time counts for in the load at most: one of a minute says nothing about the requests before
  // and after it.
  static constexpr Nanoseconds kLongestCounted{10'000'000};

  // Whether anything would be held now, if it may be.
  bool would_hold() const { return purse_ns_ > 0 && Cheapest() != 0; }
  // High-priority work has ended: for how long to hold from now. Zero: not at all, as always unless `may_hold`.
  Nanoseconds OnIdle(TimePoint now, bool may_hold);
  // It is there again.
  void OnBusy(TimePoint now);

  // What a hold would have cost if the next work came after `gap`, in nanoseconds of best-effort work.
  static double Cost(const Config& config, double weight, Nanoseconds hold, Nanoseconds gap);
  // Of a switch at present, with those that wait behind.
  double weight() const;
  double purse_ns() const { return purse_ns_; }

 private:
  static double Count(Nanoseconds time) { return static_cast<double>(time.count()); }
  size_t Cheapest() const;

  Config config_;
  std::array<double, kNumHolds> costs_{};  // of the gaps so far, each counting less by kMemory than the next
  double purse_ns_;
  size_t chosen_ = 0;
  double busy_ns_ = 0;  // and all time; old times counting less
  double all_ns_ = 0;
  bool is_idle_ = false;
  TimePoint idle_since_{};  // meaningful while is_idle_
  TimePoint busy_since_{};  // meaningful while not, from the first gap on
  TimePoint paid_until_{};  // the tithe
};

}  // namespace tally::scheduler
