// For tests and measurements: one form for every launch of a best-effort kernel that can take it, whatever it costs.
//
// From the environment of the executor, which is tallyd's or, with tally-run --embedded, the program's:
//   TALLY_FORCE_FORM = original | slices[:DEGREE] | workers[:PER_MULTIPROCESSOR] | gated[:CHUNK] | spliced[:CHUNK]
// It also switches variants on. The first launch of a kernel waits until its code is there.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "scheduler/variant_choice.h"

namespace tally::server {

struct ForcedForm {
  scheduler::LaunchForm form = scheduler::LaunchForm::kOriginal;
  // Slices: launches at most; persistent blocks: blocks per multiprocessor; gated: blocks promised ahead. By default
  // what tests want: slices of a few blocks, and far fewer persistent blocks than blocks.
  uint32_t degree = 1;
  // Gated: images are loaded with gates in them, as machine code is, instead of having variants beside them.
  bool is_in_place = false;

  static Result<ForcedForm> Parse(std::string_view text);
  // Nothing where nothing is set, or nonsense, which is logged.
  static std::optional<ForcedForm> OfEnvironment();

  // For a kernel on a device with so many multiprocessors.
  scheduler::LaunchCandidate CandidateOn(uint32_t num_multiprocessors) const;
};

}  // namespace tally::server
