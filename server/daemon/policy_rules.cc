#include "server/daemon/policy_rules.h"

#include <fmt/format.h>

#include <initializer_list>
#include <utility>

#include "scheduler/launch.h"

namespace tally::server {
namespace {

using scheduler::Setting;
using scheduler::TimeSliceAnswer;

Status CheckAll(std::string_view policy, std::initializer_list<std::pair<Setting, bool>> settings) {
  for (const auto& [setting, is_asked] : settings) {
    if (is_asked) TALLY_RETURN_IF_ERROR(scheduler::CheckHonoured(setting, policy));
  }
  return OkStatus();
}

}  // namespace

scheduler::PolicyChoice ExpectedPolicy(const DaemonConfig& config, DriverChoice driver) {
  return scheduler::ChoosePolicy({.configured = config.policy,
                                  .is_software = driver == DriverChoice::kSim,
                                  .are_slices_left_alone = config.best_effort_time_slice.count() == 0,
                                  .are_classes_mixed = config.share_contexts});
}

bool HasStarvationBound(const DaemonConfig& config) {
  return config.starvation_bound.value_or(std::chrono::nanoseconds(0)).count() != 0;
}

std::chrono::nanoseconds StarvationBoundOf(const DaemonConfig& config) {
  if (config.starvation_bound) return *config.starvation_bound;
  const bool would_yield = config.transforms != Transforms::kNone && config.transforms != Transforms::kSlices;
  // Where "auto" holds anything back, it is look-ahead that does.
  const bool is_auto = config.policy == scheduler::kAutoPolicy;
  const std::string_view policy = is_auto ? scheduler::kLookAheadPolicy : std::string_view(config.policy);
  if (would_yield || config.suspend_best_effort) return {};
  return scheduler::CheckHonoured(Setting::kStarvationBound, policy).ok() ? kDefaultStarvationBound
                                                                          : std::chrono::nanoseconds(0);
}

Status CheckHonoured(const DaemonConfig& config, DriverChoice driver) {
  for (const GrantSpec& grant : config.grants) {
    TALLY_RETURN_IF_ERROR(CheckHonoured(grant, ExpectedPolicy(config, driver).policy));
  }
  return CheckAll(ExpectedPolicy(config, driver).policy,
                  {{Setting::kStarvationBound, HasStarvationBound(config)},
                   {Setting::kDescheduling, config.suspend_best_effort},
                   {Setting::kTransforms, config.transforms != Transforms::kNone},
                   {Setting::kTurnaround, config.turnaround_threshold != DaemonConfig{}.turnaround_threshold}});
}

Status CheckHonoured(const GrantSpec& grant, std::string_view policy) {
  return CheckAll(policy,
                  {{Setting::kWeight, grant.weight != scheduler::kDefaultWeight}, {Setting::kLevel, grant.level != 0}})
      .With(fmt::format("grant '{}'", grant.tenant));
}

Status CheckHonoured(const control::SessionIdentity& session, std::string_view policy) {
  return CheckAll(policy, {{Setting::kWeight, session.weight != scheduler::kDefaultWeight},
                           {Setting::kLevel, session.level != 0},
                           {Setting::kObjective, session.slo_latency_ns != 0},
                           {Setting::kTurnaround, session.turnaround_ns != 0}});
}

Status CheckHonoured(const control::ShareChange& change, std::string_view policy) {
  return CheckAll(policy,
                  {{Setting::kWeight, change.weight.has_value()},
                   {Setting::kLevel, change.level.has_value()},
                   {Setting::kTurnaround, change.turnaround.value_or(std::chrono::nanoseconds(0)).count() != 0}});
}

TimeSliceAnswer AnswerOf(const control::LinkTimeSlices& slices) {
  if (slices.num_refused > 0) return TimeSliceAnswer::kRefused;
  if (slices.num_groups > 0) return TimeSliceAnswer::kAccepted;
  return slices.has_contexts != 0 ? TimeSliceAnswer::kRefused : TimeSliceAnswer::kNone;
}

}  // namespace tally::server
