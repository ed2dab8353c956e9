// HoldGuard: whether holding the GPU makes a service's requests shorter, found out on the service itself.
//
// What a held GPU gives depends on how a program launches its kernels, which no model knows. So requests go in rounds
// of 32 with or without holding: by turns at first, then the better way, and the other once in 128 rounds (less than
// what a p99 sees). Without holding is what counts as better, unless requests are shorter with it by 1 % and by more
// than chance explains. Compared are means of logarithms, old rounds counting less: a service with two sorts of
// requests needs no equal mix for that, only enough rounds.
//
// A service may change, such as when more requests come. So if a round of the other way is better than the one before
// it by far more than chance explains, what was known is forgotten, and both ways go by turns again.
//
// Not thread-safe. No clock: the caller measures.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace tally::scheduler {

class HoldGuard {
 public:
  static constexpr uint32_t kRound = 32;         // requests
  static constexpr uint32_t kRoundsOfTrial = 8;  // by turns, at first
  static constexpr uint32_t kRoundsBetween = 127;

  // Whether the GPU is held for the requests that begin now.
  bool holds() const { return holds_; }
  // Whether it is held when nothing is tried.
  bool prefers_holding() const { return prefers_holding_; }
  // A request that began and ended since the last answer took so long.
  void OnRequest(std::chrono::nanoseconds took);

 private:
  // Of numbers that each count less than the next by a factor, or all the same.
  struct Moments {
    double weight = 0;
    double sum = 0;
    double sum_of_squares = 0;
    void Add(double number, double memory = 1);
    double Mean() const { return sum / weight; }
    double SquaredError() const;  // of the mean
  };
  void EndRound();
  bool IsHoldingBetter() const;
  bool IsSurprise() const;

  bool holds_ = false;
  bool prefers_holding_ = false;
  Moments round_;  // of the logarithms of its requests so far
  Moments round_before_;
  uint32_t num_rounds_ = 0;        // since both ways go by turns
  uint32_t num_since_other_ = 0;   // rounds
  std::array<Moments, 2> rounds_;  // means of those without, with
};

}  // namespace tally::scheduler
