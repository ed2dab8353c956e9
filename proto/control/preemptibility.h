// By what high-priority work can take the GPU from a launch of a best-effort program: how its GPU time is split in
// metrics and tallyctl.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tally::control {

enum class Preemptibility : uint8_t {
  kSlices,            // in flight for no longer than the turnaround threshold, slice by slice
  kPersistentBlocks,  // they yield when asked
  kGated,             // in a queue that one store empties
  kShort,             // its kernel is: the same as a slice
  kDescheduling,      // its context is descheduled, in the middle of whatever runs
  // The rest is left to the time slices of the GPU, because ...
  kKernelsKept,  // the program runs with --transforms none
  kNobodyThere,  // no high-priority program was there to stop it for, or none had worked lately
  kNotTriedYet,  // it is being timed, or its variants made and tried
  kNoVariant,    // it has none, or none that is good for something; `tallyctl kernels` says why
  kAttributes,   // of the launch, which its variants cannot have
  kCooperative,  // its blocks wait for one another
  kGraph,        // it is a whole captured graph
};
inline constexpr size_t kNumPreemptibilities = 12;

struct PreemptibilityName {
  const char* by;      // "slices", ... "time_slice"
  const char* reason;  // why only that; "" for the others
};
constexpr PreemptibilityName NameOf(Preemptibility preemptibility) {
  switch (preemptibility) {
    case Preemptibility::kSlices:
      return {"slices", ""};
    case Preemptibility::kPersistentBlocks:
      return {"workers", ""};
    case Preemptibility::kGated:
      return {"gated", ""};
    case Preemptibility::kShort:
      return {"short", ""};
    case Preemptibility::kDescheduling:
      return {"suspension", ""};
    case Preemptibility::kKernelsKept:
      return {"time_slice", "kernels_kept"};
    case Preemptibility::kNobodyThere:
      return {"time_slice", "nobody_there"};
    case Preemptibility::kNotTriedYet:
      return {"time_slice", "not_tried_yet"};
    case Preemptibility::kNoVariant:
      return {"time_slice", "no_variant"};
    case Preemptibility::kAttributes:
      return {"time_slice", "launch_attributes"};
    case Preemptibility::kCooperative:
      return {"time_slice", "cooperative"};
    case Preemptibility::kGraph:
      return {"time_slice", "graph"};
  }
  return {"time_slice", "unknown"};
}

}  // namespace tally::control
