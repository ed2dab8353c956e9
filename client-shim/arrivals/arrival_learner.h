// Which wake-ups of a program are followed by work on the GPU, and how soon.
//
// A *wake-up* is a receive that has brought something; its *site* is a number for the place in the program that made
// it. The *lead* of a wake-up is the time until work begins on the GPU, which had none of this program. What was
// learned of a site says when work is expected after the next wake-up there.
//
//   wake-up at A      wake-up at B        work begins
//   |------------------------- lead of A ----|
//                     |------- lead of B ----|
//
// A site is believed if most of its last wake-ups had work in the window that its leads before that gave. The window is
// from the second shortest to the second longest of the last 32 leads, and a little on either side.
//
// Pure: no clock, no memory but its own, no calls. Not thread-safe: the owner serialises calls. Times may jump: what is
// pending then is forgotten.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace tally::client_shim {

class ArrivalLearner {
 public:
  static constexpr size_t kSites = 64;
  static constexpr size_t kWays = 4;  // places that a site may have in the table
  static constexpr size_t kPending = 16;
  static constexpr size_t kLeads = 32;
  static constexpr int kOutcomes = 32;
  static constexpr int kTrained = 12;                     // outcomes before anything is expected
  static constexpr uint64_t kHorizonNs = 20'000'000;      // later work has another cause
  static constexpr uint64_t kShortestLeadNs = 100'000;    // nothing can be done in less
  static constexpr uint64_t kWidestWindowNs = 1'000'000;  // for longer nobody keeps the GPU free

  struct Window {
    uint64_t from_ns;
    uint64_t until_ns;
  };

  // Something was received while no work of this program was on the GPU. When work is expected, if it is.
  std::optional<Window> OnWake(uint64_t site, uint64_t now_ns);
  // Work has begun where there was none. In the order in which it happened, and before later wake-ups.
  void OnWorkBegun(uint64_t at_ns);

 private:
  struct Site {
    uint64_t key = 0;  // 0: free; else odd
    uint64_t used_ns = 0;
    uint32_t outcomes = 0;  // bit 0 is the last
    uint8_t num_outcomes = 0;
    uint8_t num_leads = 0;
    uint8_t next_lead = 0;
    uint32_t from_ns = 0;  // the window's ends as leads
    uint32_t until_ns = 0;
    std::array<uint32_t, kLeads> leads{};
  };
  struct Pending {
    uint64_t key;
    uint64_t at_ns;
    uint32_t from_ns;  // 0 and 0: nothing was known
    uint32_t until_ns;
  };

  Site* Find(uint64_t key);
  Site& FindOrMake(uint64_t key, uint64_t now_ns);
  void NoteOutcome(uint64_t key, bool is_right);
  void NoteLead(Site& site, uint32_t lead_ns);
  static bool IsBelieved(const Site& site);
  void Expire(uint64_t now_ns);

  std::array<Site, kSites> sites_{};
  std::array<Pending, kPending> pending_{};  // oldest first
  size_t num_pending_ = 0;
  uint64_t last_ns_ = 0;
};

}  // namespace tally::client_shim
