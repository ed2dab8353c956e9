// RepeatedWindow: a Window whose launches are all complete before the next ones are admitted, for programs that launch
// the same again and again. What must come behind what depends on the accesses alone, one after the other. So for
// those that came in this order before it is remembered, and nothing is compared.
//
//      begin --A--> 1 --B--> 2 --C--> 3        state: all that was admitted since Clear, and in which order
//                   `--D--> 4 --C--> 5         3 and 5 both end with C, but C is behind B in one of them, behind D in
//                                              the other
//
// A launch that is not remembered is compared with those before it, and those behind it are, too, until Clear.
//
// What is in a full table's place goes if it was of use least lately. That matters: whatever follows a state that goes
// is learned anew, in other places, and must not drive out what is in use.
//
// Costs: what is remembered a look at some places of a table, and a copy of its accesses in case the next one is not;
// else those of Window. At most kMostStates are kept, in 320 KB; nothing allocates in steady state. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "scheduler/window/access.h"
#include "scheduler/window/window.h"

namespace tally::scheduler {

class RepeatedWindow {
 public:
  static constexpr size_t kMostStates = 8192;

  // `name`: a number of the caller's below 2^63 that no other accesses and no other extent ever have. 0: it has none,
  // and is found by its accesses. Nothing if the window is full.
  std::optional<Window::Entry> Admit(uint64_t name, std::span<const Access> accesses, Extent extent = Extent::kSaid);
  // All are complete, or whatever comes is behind them by other means.
  void Clear();

  // Launches that were compared with others, for figures.
  uint64_t num_compared() const { return num_compared_; }

 private:
  static constexpr size_t kWays = 8;
  // From a state by a launch to the next one. States are numbered and never again: what follows one that was forgotten
  // is not found any more.
  struct Step {
    uint64_t state = 0;
    uint64_t name = 0;  // 0: empty
    uint64_t next = 0;
    SlotSet edges = 0;
    uint64_t last_use = 0;  // by num_windows_
  };
  struct Named {
    std::vector<Access> accesses;
    Extent extent = Extent::kSaid;
    uint64_t name = 0;      // 0: empty
    uint64_t last_use = 0;  // as of a step
  };
  // Admitted as it was remembered; the window does not know it until it has caught up.
  struct Held {
    size_t begin = 0;  // in accesses_
    size_t end = 0;
    Extent extent = Extent::kSaid;
  };
  static constexpr size_t kMostNamed = 256;
  static constexpr uint64_t kFirstName = uint64_t{1} << 63;

  std::span<Step> PlacesOf(uint64_t state, uint64_t name);
  void Learn(uint64_t name, SlotSet edges);
  uint64_t NameOf(std::span<const Access> accesses, Extent extent);
  void CatchUp();

  Window window_;
  size_t num_admitted_ = 0;  // all in all
  std::vector<Held> held_;   // the first of them
  std::vector<Access> accesses_;
  size_t num_caught_up_ = 0;  // of held_
  uint64_t state_ = 0;
  uint64_t last_state_ = 0;
  uint64_t num_windows_ = 1;
  std::vector<Step> steps_;  // empty until something is learned
  std::vector<Named> named_;
  uint64_t next_name_ = kFirstName;
  uint64_t num_compared_ = 0;
};

}  // namespace tally::scheduler
