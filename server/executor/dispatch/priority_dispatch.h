// The dispatch gate that makes priorities real between executors: high-priority launches announce, best-effort ones
// wait.
//
// Before a high-priority launch the activity page is marked busy; once everything high-priority of this executor is
// complete it is marked idle, with a hold-off. A best-effort launch goes only while no executor of the machine is busy,
// and never with more in flight than drains quickly, because what is on the GPU cannot be taken back yet. Copies and
// fills of best-effort sessions likewise. Without a high-priority executor on the machine both cost one load.
//
// Left to the GPU's time slices (LeaveToTimeSlices) best-effort launches go at once; high-priority ones are announced
// all the same, for those who are not, and for refresher.h.
//
// Source: Tally's priority-aware scheduling at kernel granularity (the "scheduling without transformation" of its
// ablation); the decisions themselves are scheduler/priority_gate.h and scheduler/look_ahead.h.
#pragma once

#include <chrono>
#include <memory>

#include "base/clock.h"
#include "server/executor/dispatch/activity_page.h"
#include "server/executor/dispatch/dispatch_gate.h"

namespace tally::server {

struct DriverTable;

// `driver` must outlive it; the device's primary context must be current on the threads that call it, as it is on lane
// threads.
//
// `starvation_bound`: best-effort work that has waited so long gets one launch through although high-priority work is
// there, at most one per bound and device; zero: it waits. `clock` says how long work was kept back; it outlives all.
std::unique_ptr<DispatchGate> CreatePriorityDispatch(const DriverTable& driver, std::unique_ptr<ActivityPage> page,
                                                     std::chrono::nanoseconds starvation_bound, const Clock& clock);

}  // namespace tally::server
