// How a launch is put on its stream in each of its forms. Each way passes admission by itself, and seals the stream's
// queue first where it must not be overtaken (Stream::Seal).
#pragma once

#include <cuda.h>

#include <chrono>
#include <optional>

#include "proto/control/preemptibility.h"
#include "scheduler/launch.h"
#include "scheduler/variant_choice.h"
#include "server/executor/dispatch/launch_timer.h"
#include "server/executor/issue/launch_gates.h"
#include "server/executor/issue/pending_launch.h"
#include "server/executor/issue/variant_module.h"

namespace tally::server {

using control::Preemptibility;

// As the program wrote it. `why`: as what its GPU time counts, if it does.
CUresult LaunchOriginal(PendingLaunch& launch, std::optional<Preemptibility> why = std::nullopt);

// In a queue that may be stopped, which keeps the launch. `is_sample`: is timed, for the profile.
CUresult LaunchGated(PendingLaunch& launch, const GatedFunction& code, uint32_t chunk, bool is_sample);
// Not there, though it could be: it is short, of about `duration`. Timed with all that this brings with it.
CUresult LaunchUngated(PendingLaunch& launch, std::chrono::nanoseconds duration, bool is_sample);

// What it asks for as the program wrote it.
scheduler::LaunchAsked AskedOfOriginal(const PendingLaunch& launch);

// Carries out what a profile has planned.
class LaunchRun {
 public:
  // `is_sample`: is timed, for the profile. `piece`: what of it runs to its end once begun takes about so long; zero:
  // not known.
  LaunchRun(PendingLaunch& launch, bool is_sample, std::chrono::nanoseconds piece)
      : launch_(launch), is_sample_(is_sample), piece_(piece) {}

  // `variants`: has code for this form; unused for the original.
  CUresult Run(const scheduler::LaunchCandidate& candidate, VariantModule* variants);

 private:
  CUresult RunForm(const scheduler::LaunchCandidate& candidate, VariantModule* variants);
  CUresult RunOriginal();
  CUresult RunSlices(const VariantModule::Form& form, const scheduler::LaunchCandidate& candidate);
  CUresult RunPersistentBlocks(const VariantModule::Form& form, const scheduler::LaunchCandidate& candidate);
  // Once the gate has let something go: what waiting there takes does not count.
  void BeginTiming();

  PendingLaunch& launch_;
  bool is_sample_;
  const std::chrono::nanoseconds piece_;
  std::optional<LaunchTimer::Timing> timing_;
};

}  // namespace tally::server
