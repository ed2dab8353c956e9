// The dispatch gate that asks a policy of the table (scheduler/policy_list.h): one policy and one queue per device.
//
// High-priority launches never wait and are announced on the activity page, as in priority_dispatch.h, if the policy
// minds classes at all; best-effort launches pass device_queue.h.
#pragma once

#include <chrono>
#include <memory>

#include "scheduler/policy_list.h"
#include "server/executor/dispatch/activity_page.h"
#include "server/executor/dispatch/dispatch_gate.h"

namespace tally::server {

struct DriverTable;

// `driver` must outlive it; the device's primary context must be current on the threads that call it, as it is on lane
// threads. `starvation_bound`: for policies that have one; zero: none.
std::unique_ptr<DispatchGate> CreatePolicyDispatch(const DriverTable& driver, std::unique_ptr<ActivityPage> page,
                                                   const scheduler::PolicyRow& policy,
                                                   std::chrono::nanoseconds starvation_bound = {});

}  // namespace tally::server
