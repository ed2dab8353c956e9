// HoldGuard: whether holding the GPU makes a service's requests shorter, found out on the service itself.
//
// What a held GPU gives depends on how a program launches its kernels, which no model knows. So requests go in rounds
// of 16 with or without holding, by turns at first:
//
//      without | with | without | with | ...      a turn: one of each way, and the next one
//
// Each is compared with its two neighbours: the logarithm of how many times as long requests took without. As all are
// of the same moment, a service whose requests change, or are of several sorts, changes all. What one comparison counts
// for is bounded: a burst of other requests that begins between two rounds says little. Old ones count less.
//
// Then comes the better way. Without is what counts as better, unless requests are shorter with it by 1 % and by more
// than chance explains. Now and then the other way has its turn again, and a further one while that speaks for it:
// after 16 rounds, or 256 where one way is known to be longer, as p99 would see more. What is known is of requests of
// that length: best-effort work that begins or ends changes both. So rounds that differ by 10 % from the first one
// after the turns count for 16 of these 256.
//
// Not thread-safe. No clock: the caller measures.
#pragma once

#include <chrono>
#include <cstdint>

namespace tally::scheduler {

class HoldGuard {
 public:
  static constexpr uint32_t kRound = 16;    // requests
  static constexpr uint32_t kNumTurns = 4;  // at first
  static constexpr uint32_t kRoundsBetween = 16;
  static constexpr uint32_t kRoundsBetweenKnown = 256;

  // Whether the GPU is held for the requests that begin now.
  bool holds() const { return holds_; }
  // Whether it is held when nothing is tried.
  bool prefers_holding() const { return prefers_holding_; }
  // A request that began and ended since the last answer took so long.
  void OnRequest(std::chrono::nanoseconds took);

 private:
  // How many times as long requests took without holding, as logarithms; each counts less than the next by a factor.
  struct Gains {
    double weight = 0;
    double sum = 0;
    double sum_of_squares = 0;
    void Add(double gain);
    double Mean() const { return sum / weight; }
    double Error() const;  // of the mean
  };
  void EndRound();
  // With the round before, which went the other way.
  void Compare(double log_ns);
  void BeginTurns(uint32_t num_turns);
  // Between turns, with the better way.
  void CountRound(double log_ns);
  // One way is better, by more than so many standard errors.
  bool IsCertain(double standard_errors) const;

  bool holds_ = false;
  bool prefers_holding_ = false;
  double log_ns_ = 0;          // sum over the round's requests so far
  uint32_t num_requests_ = 0;  // these
  double log_ns_before_ = 0;   // mean of the round before
  bool is_other_before_ = false;
  uint32_t num_rounds_ = 0;     // since the last turns
  double log_ns_of_first_ = 0;  // of these
  uint32_t num_turns_left_ = kNumTurns;
  bool is_second_ = false;  // of a turn's two comparisons
  double first_gain_ = 0;
  Gains gains_;
};

}  // namespace tally::scheduler
