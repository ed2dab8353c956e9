// Says of each launch of a session what it touches, so that a window can tell whether it may run beside others.
//
//      PendingLaunch --> kernel: its segments (SegmentCompiler) --> the launch: remembered, or its boxes (AccessesOf)
//
// Never waits: a kernel that was not looked at yet is a barrier, "not-yet". A launch that is found again costs neither
// allocation nor lock.
//
// What the program declares of a launch (include/tally/segments.h) is taken instead, whatever its kernel is.
#pragma once

#include <memory>
#include <vector>

#include "server/executor/driver/devices.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/launch_accesses.h"
#include "server/executor/issue/pending_launch.h"
#include "server/executor/issue/remembered_accesses.h"
#include "server/executor/issue/segment_compiler.h"

namespace tally::server {

// Of a kernel that launches, as somebody asked what they touch. Goes with its code: variables have other addresses
// then.
struct KernelAccesses {
  struct OnDevice {
    int device = 0;
    std::shared_ptr<const AwaitedSegments> awaited;
    const FoundSegments* found = nullptr;               // of `awaited`, once it is there
    const char* barrier = "not-yet";                    // of all its launches; null: it depends
    std::vector<ptx_transforms::MemorySpan> variables;  // in the order of the segments' symbols
  };
  std::vector<OnDevice> devices;
};

// One per session; guarded by its sequencer.
class AccessFinder {
 public:
  // All outlive this.
  AccessFinder(const DriverTable& driver, const Devices& devices, SegmentCompiler& compiler, const LaunchMemory& memory)
      : driver_(driver), devices_(devices), compiler_(compiler), memory_(memory) {}

  // Of a transfer what it says; else of `launch` its kernel, shape, flags, attributes, parameters and stream count; the
  // real context of the stream's device is current. Valid until the next call.
  const LaunchAccesses& Of(const PendingLaunch& launch);
  // What memory said for the launch that was asked about last, unless that is a barrier or says itself what it touches.
  // Valid until the next call.
  const MemoryAnswers& answers() const { return remembered_.last_answers(); }
  // Evaluations: launches that were not found. For figures.
  uint64_t num_evaluations() const { return num_evaluations_; }

 private:
  KernelAccesses::OnDevice& Here(Kernel& kernel, int device);
  void Look(const Kernel& kernel, KernelAccesses::OnDevice& here) const;
  const LaunchAccesses& Barrier(const char* code);

  const DriverTable& driver_;
  const Devices& devices_;
  SegmentCompiler& compiler_;
  const LaunchMemory& memory_;
  RememberedAccesses remembered_;
  std::vector<std::byte> inputs_;  // of the launch that is looked at
  LaunchAccesses barrier_ = BarrierFor("not-yet");
  LaunchAccesses declared_;  // of the launch or transfer that is looked at
  uint64_t num_evaluations_ = 0;
};

}  // namespace tally::server
