// By what high-priority work can take the GPU from a launch of a best-effort program: how its GPU time is split in
// metrics and tallyctl.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tally::control {

enum class Coverage : uint8_t {
  kSlices,      // in flight for no longer than the turnaround threshold, slice by slice
  kWorkers,     // they yield when asked
  kGated,       // in a queue that one store empties
  kShort,       // its kernel is: the same as a slice
  kSuspension,  // its context is suspended, in the middle of whatever runs
  // The rest is left to the time slices of the GPU, because ...
  kKernelsKept,  // the program runs with --transforms none
  kNobodyThere,  // no high-priority program was there to stop it for, or none had worked lately
  kNotTriedYet,  // it is being timed, or its variants made and tried
  kNoVariant,    // it has none, or none that is good for something; `tallyctl kernels` says why
  kAttributes,   // of the launch, which its variants cannot have
  kCooperative,  // its blocks wait for one another
  kGraph,        // it is a whole captured graph
};
inline constexpr size_t kNumCoverages = 12;

struct CoverageName {
  const char* by;      // "slices", ... "time_slice"
  const char* reason;  // why only that; "" for the others
};
constexpr CoverageName NameOf(Coverage coverage) {
  switch (coverage) {
    case Coverage::kSlices:
      return {"slices", ""};
    case Coverage::kWorkers:
      return {"workers", ""};
    case Coverage::kGated:
      return {"gated", ""};
    case Coverage::kShort:
      return {"short", ""};
    case Coverage::kSuspension:
      return {"suspension", ""};
    case Coverage::kKernelsKept:
      return {"time_slice", "kernels_kept"};
    case Coverage::kNobodyThere:
      return {"time_slice", "nobody_there"};
    case Coverage::kNotTriedYet:
      return {"time_slice", "not_tried_yet"};
    case Coverage::kNoVariant:
      return {"time_slice", "no_variant"};
    case Coverage::kAttributes:
      return {"time_slice", "launch_attributes"};
    case Coverage::kCooperative:
      return {"time_slice", "cooperative"};
    case Coverage::kGraph:
      return {"time_slice", "graph"};
  }
  return {"time_slice", "unknown"};
}

}  // namespace tally::control
