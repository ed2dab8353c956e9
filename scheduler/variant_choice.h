// VariantChoice: which form of one kernel launch to use, learned from the launches that a program makes anyway.
//
// A best-effort kernel can run as it is, cut into slices, or by a number of persistent blocks that can stop at block
// boundaries. Each form costs something and gives the GPU back after its own *turnaround latency*. One VariantChoice
// belongs to one (kernel, grid, block, shared memory): the best form depends on all of them.
//
//   first launches run the original and are timed. Shorter than the threshold: it stays, nothing else is tried.
//   otherwise variants are wanted (wants_variants); once they exist every candidate runs a few times, in turn.
//   then the fastest candidate whose turnaround meets the threshold is used; if none does, the one that gives back
//   soonest of those that take at most kMostSlowdown times as long as the original.
//
// The turnaround is that of one *piece*, which runs to its end once begun (the kernel, a slice, a block of each
// persistent block), and of everything around it (kGiveBackOverhead). Who dispatches keeps no more pieces in flight
// than drain within the threshold, so several short ones make it no longer.
//
// Several programs share one VariantChoice and may have thresholds of their own: what was measured is the same for all,
// and a threshold far below those before brings further candidates.
//
// Source: Tally, section 4 (profile-guided choice of launch configurations, Algorithm 1); here the candidates' times
// come from ordinary launches, the turnaround of persistent blocks from real yields and that of slices from single ones
// once there are some, and a threshold that changes at run time only changes the choice, never the measurements.
//
// Not thread-safe. No clock: the caller measures.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/recent_times.h"
#include "scheduler/tuning.h"

namespace tally::scheduler {

enum class LaunchForm : uint8_t {
  kOriginal,
  kSlices,            // degree: into how many launches the grid is cut at most
  kPersistentBlocks,  // degree: number of persistent blocks
  kGated,             // degree: blocks that are promised ahead; used wherever it can be, so it is no candidate
};

struct LaunchCandidate {
  LaunchForm form = LaunchForm::kOriginal;
  uint32_t degree = 1;

  bool operator==(const LaunchCandidate&) const = default;
};

// What is known about a kernel's size on the device, for the candidates worth trying.
struct LaunchSize {
  uint64_t num_blocks = 1;
  uint32_t num_multiprocessors = 1;
  uint32_t max_blocks_per_multiprocessor = 1;  // of the persistent kernel, by occupancy; 0: there is no such kernel
  bool can_slice = false;
};

// Slices: as few as could meet the threshold given the original's duration, and twice (one runs while the next waits)
// and four times as many. Persistent blocks:
// multiples of the number of multiprocessors up to what is resident at one time; none when every block is resident
// anyway.
std::vector<LaunchCandidate> CandidatesFor(const LaunchSize& size, std::chrono::nanoseconds original_duration,
                                           std::chrono::nanoseconds threshold);

class VariantChoice {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  static constexpr uint32_t kSamplesEach = 3;
  // After so many launches the chosen candidate is timed again: programs change phase, and clocks change.
  static constexpr uint32_t kLaunchesBetweenSamples = 256;
  // What giving back sooner may cost where the threshold is not met all the same.
  static constexpr int kMostSlowdown = 4;

  struct Measured {
    LaunchCandidate candidate;
    Nanoseconds duration{0};    // median of the last samples
    Nanoseconds turnaround{0};  // estimated from the duration, or what three of four measured ones stayed below
    uint32_t num_samples = 0;
    bool is_turnaround_measured = false;
  };

  explicit VariantChoice(uint64_t num_blocks) : num_blocks_(num_blocks) {
    entries_.push_back({});
    entries_[0].measured.candidate = {};
  }

  // The form of the next launch, and whether it should be timed.
  struct Next {
    LaunchCandidate candidate;
    bool is_sample = false;
  };
  Next NextLaunch(Nanoseconds threshold);
  // Whether a launch should be timed whose form was decided otherwise.
  bool IsSample(const LaunchCandidate& candidate);

  // One slice took `duration`.
  void OnSlice(const LaunchCandidate& candidate, Nanoseconds duration) {
    OnTurnaround(candidate, duration + kGiveBackOverhead);
  }
  // A timed launch took `duration` from its begin to its end, undisturbed. Candidates that are not (or no longer) known
  // are ignored.
  void OnDuration(const LaunchCandidate& candidate, Nanoseconds duration);
  // Persistent blocks were asked to yield and were gone after `turnaround`. One that took long by accident does not
  // decide: a few are needed to say that it takes longer than estimated.
  void OnTurnaround(const LaunchCandidate& candidate, Nanoseconds turnaround);

  // The original was timed and is longer than the threshold, and nobody has yet said what else there is, or for
  // thresholds at least kMuchSooner times as long only.
  bool WantsVariants(Nanoseconds threshold) const;
  // What can be tried besides the original, and what is known already, to meet that threshold. Empty: nothing.
  void SetCandidates(std::span<const LaunchCandidate> candidates, Nanoseconds threshold);
  // The shortest threshold that SetCandidates was told; meaningless before.
  Nanoseconds candidates_for() const { return candidates_for_; }

  // The best of what is known now.
  const Measured& Best(Nanoseconds threshold) const;
  bool is_settled() const;  // nothing is left to be tried
  const Measured& original() const { return entries_[0].measured; }
  // How long a piece takes that runs to its end once begun, as far as anything is known; zero: not yet.
  Nanoseconds PieceOf(const LaunchCandidate& candidate) const;
  // The same of a whole launch.
  Nanoseconds DurationOf(const LaunchCandidate& candidate) const;
  // What is known of that candidate; of the original if there is no such candidate.
  const Measured& Of(const LaunchCandidate& candidate) const;
  // The original first.
  std::vector<Measured> Everything() const;
  // Takes over what was measured in an earlier life; as SetCandidates with their samples.
  void Restore(std::span<const Measured> measured, Nanoseconds candidates_for);

 private:
  struct Entry {
    Measured measured;
    RecentTimes durations;
    RecentTimes turnarounds;
  };
  static constexpr int kMuchSooner = 2;
  void UpdateTurnaround(Entry& entry);
  Entry* Find(const LaunchCandidate& candidate);
  Nanoseconds EstimatedPiece(const LaunchCandidate& candidate, Nanoseconds duration) const;

  uint64_t num_blocks_;
  std::vector<Entry> entries_;  // [0] is the original
  bool has_candidates_ = false;
  Nanoseconds candidates_for_{0};
  uint32_t num_since_sample_ = 0;
};

}  // namespace tally::scheduler
