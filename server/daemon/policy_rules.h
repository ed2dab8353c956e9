// What tallyd refuses because the policy in force would ignore it (scheduler/policy_choice.h decides; here is what is
// asked). What is as it would be by default was not asked for.
#pragma once

#include <chrono>
#include <string_view>

#include "base/status.h"
#include "proto/control/executor_choices.h"
#include "proto/control/executor_link_abi.h"
#include "server/daemon/config.h"

namespace tally::server {

// The policy of executors that are still to say what their driver thinks of time slices. `driver` is resolved.
scheduler::PolicyChoice ExpectedPolicy(const DaemonConfig& config, DriverChoice driver);

// Long enough that only work that nothing else would ever let through gets past it (docs/scheduling.md).
inline constexpr std::chrono::seconds kDefaultStarvationBound{10};

// Whether one was asked for; the time slices are then made to fit it.
bool HasStarvationBound(const DaemonConfig& config);
// That executors are started with: what was asked for, else the default one where the policy knows any and nothing was
// asked for that does not go with one. Zero: none.
std::chrono::nanoseconds StarvationBoundOf(const DaemonConfig& config);

Status CheckHonoured(const DaemonConfig& config, DriverChoice driver);
Status CheckHonoured(const GrantSpec& grant, std::string_view policy);
Status CheckHonoured(const control::SessionIdentity& session, std::string_view policy);
Status CheckHonoured(const control::ShareChange& change, std::string_view policy);

// What an executor says of its time slices.
scheduler::TimeSliceAnswer AnswerOf(const control::LinkTimeSlices& slices);

}  // namespace tally::server
