// The two dispatch gates that make priorities real between executors: one announces, one holds back.
//
// A high-priority executor marks the activity page busy before it dispatches and idle, with a hold-off, once everything
// it dispatched is complete. A best-effort executor dispatches only while no high-priority executor is busy, and never
// keeps more in flight than drains quickly, because what is on the GPU cannot be taken back yet. Without a
// high-priority executor on the machine neither costs more than one load per launch.
//
// Source: Tally's priority-aware scheduling at kernel granularity (the "scheduling without transformation" of its
// ablation); the decisions themselves are scheduler/priority_gate.h and scheduler/look_ahead.h.
#pragma once

#include <memory>

#include "base/status.h"
#include "proto/shm/handshake_abi.h"
#include "server/gpu/activity_page.h"
#include "server/gpu/dispatch_gate.h"

namespace tally::server {

struct DriverTable;

// The gate of an executor of `priority_class` (kDefault counts as best-effort). `driver` must outlive it; its devices'
// primary contexts must be current on the threads that call it, as they are on lane threads.
Result<std::unique_ptr<DispatchGate>> CreatePriorityDispatch(shm::PriorityClass priority_class,
                                                             const DriverTable& driver,
                                                             std::unique_ptr<ActivityPage> page);

}  // namespace tally::server
