// A session as its launches know it: how they pass admission, which forms they may take, where they are counted.
#pragma once

#include <atomic>
#include <memory>

#include "server/executor/dispatch/admission.h"
#include "server/executor/dispatch/figure_counters.h"
#include "server/executor/dispatch/share_gate.h"

namespace tally::server {

class PreemptibilityMeter;
class TraceSwitch;
class VariantRegistry;
struct DriverTable;
struct RunsOwner;

// References into a session and its executor, which outlive it.
struct LaunchOwner {
  const DriverTable& driver;
  Admission& admission;
  AdmissionTenant& admission_tenant;
  VariantRegistry* const variants;  // null: every kernel runs as it is
  const bool& keeps_kernels;        // this session's do
  const std::atomic<bool>& is_high_priority;
  const std::shared_ptr<RunsOwner>& runs_owner;
  PreemptibilityMeter& preemptibility;
  FigureCounters& counters;
  const TraceSwitch& trace;
  const std::unique_ptr<ShareGate>& share;  // null: no cap on its GPU time

  // Where work is about to be put on the device that is none of a capture. False: the client has left.
  bool AwaitShare(int device) const {
    return share == nullptr || is_high_priority.load(std::memory_order_relaxed) || share->Await(device);
  }
};

}  // namespace tally::server
