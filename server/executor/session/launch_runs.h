// How a launch is put on its stream in each of its forms. Each way passes the dispatch gate by itself, and seals the
// stream's queue first where it must not be overtaken (Stream::Seal).
#pragma once

#include <chrono>
#include <optional>

#include "proto/control/coverage.h"
#include "scheduler/variant_choice.h"
#include "server/executor/issue/launch_timer.h"
#include "server/executor/session/launch_gates.h"
#include "server/executor/session/varying_launch.h"

namespace tally::server {

// As the program wrote it. `why`: as what its GPU time counts, if it does.
CUresult LaunchOriginal(ServedRequest& served, Stream& stream, LaunchParameters& request,
                        std::optional<Coverage> why = std::nullopt);

// In a queue that may be stopped. `is_sample`: is timed, for the profile.
CUresult LaunchGated(const VaryingLaunch& launch, const GatedFunction& code, uint32_t chunk, bool is_sample);
// Not there, though it could be: it is short, of about `duration`. Timed with all that this brings with it.
CUresult LaunchUngated(const VaryingLaunch& launch, std::chrono::nanoseconds duration, bool is_sample);

// By which launches of the original take the same time.
LaunchKind KindOfOriginal(LaunchParameters& request);

// Carries out what a profile has planned.
class LaunchRun {
 public:
  // `is_sample`: is timed, for the profile. `piece`: what of it runs to its end once begun takes about so long; zero:
  // not known.
  LaunchRun(const VaryingLaunch& launch, bool is_sample, std::chrono::nanoseconds piece)
      : launch_(launch), is_sample_(is_sample), piece_(piece) {}

  // `variants`: has code for this form; unused for the original.
  CUresult Run(const scheduler::LaunchCandidate& candidate, VariantModule* variants);

 private:
  CUresult RunForm(const scheduler::LaunchCandidate& candidate, VariantModule* variants);
  CUresult RunOriginal();
  CUresult RunSlices(const VariantModule::Form& form, const scheduler::LaunchCandidate& candidate);
  CUresult RunWorkers(const VariantModule::Form& form, const scheduler::LaunchCandidate& candidate);
  // Once the gate has let something go: what waiting there takes does not count.
  void BeginTiming();

  const VaryingLaunch& launch_;
  bool is_sample_;
  const std::chrono::nanoseconds piece_;
  std::optional<LaunchTimer::Timing> timing_;
};

}  // namespace tally::server
