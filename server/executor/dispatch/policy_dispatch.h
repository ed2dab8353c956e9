// Admission of an executor: one policy of the table (scheduler/policy_list.h) and one queue per device.
//
// High-priority launches never wait but for higher levels. If the policy minds classes at all they make priorities
// real between executors: before one the activity page is marked busy; once everything high-priority of this executor
// is complete it is marked idle, with a hold-off. Best-effort launches pass device_queue.h; copies and fills of
// best-effort sessions likewise.
//
// Left to the GPU's time slices (LeaveToTimeSlices) best-effort launches go at once; high-priority ones are announced
// all the same, for those who are not, and for refresher.h. That, and a policy that decides nothing while there is no
// high-priority executor on the machine, costs a launch two loads.
#pragma once

#include <chrono>
#include <memory>

#include "base/clock.h"
#include "scheduler/policy_list.h"
#include "server/executor/dispatch/activity_page.h"
#include "server/executor/dispatch/admission.h"

namespace tally::server {

class Devices;
struct DriverTable;

// `driver`, `devices`, `policy` and `clock` must outlive it; the device's primary context must be current on the
// threads that call it, as it is on channel threads. `starvation_bound`: for policies that have one; zero: none.
// `may_hold`: see HighPriorityAnnouncer.
std::unique_ptr<Admission> CreatePolicyDispatch(const DriverTable& driver, Devices& devices,
                                                std::unique_ptr<ActivityPage> page, const scheduler::PolicyRow& policy,
                                                std::chrono::nanoseconds starvation_bound, const Clock& clock,
                                                bool may_hold = false);

}  // namespace tally::server
