// What all executors are told of one another: thresholds, time slices, policies (executor_pool.h).
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "scheduler/slo_feedback.h"
#include "server/daemon/executor_pool.h"
#include "server/daemon/policy_rules.h"
#include "server/daemon/tuning_plan.h"

namespace tally::server {

void ExecutorPool::Reconfigure(DaemonConfig config) {
  config.turnaround_threshold = config_.turnaround_threshold;  // an operator may have set it meanwhile
  spawner_.Reconfigure(config);
  config_ = std::move(config);
}

Status ExecutorPool::CheckHonoured(scheduler::Setting setting) const {
  return scheduler::CheckHonoured(setting, ExpectedPolicy(config_, spawner_.driver()).policy);
}

Status ExecutorPool::CheckHonoured(const GrantSpec& grant) const {
  return server::CheckHonoured(grant, ExpectedPolicy(config_, spawner_.driver()).policy);
}

void ExecutorPool::SetTurnaroundThreshold(std::chrono::nanoseconds threshold) {
  config_.turnaround_threshold = threshold;
  spawner_.SetTurnaroundThreshold(threshold);
  PlanTuning();
}

void ExecutorPool::SetTimeSlicesAct(bool they_act) {
  time_slices_act_ = they_act;
  PlanTimeSlices();
}

scheduler::Tuning ExecutorPool::tuning() const {
  std::optional<int> throttle_level;
  for (const ExecutorPtr& executor : executors_) {
    for (const auto& [id, session] : executor->sessions) {
      const bool is_high = session.identity.priority_class == static_cast<uint32_t>(shm::PriorityClass::kHighPriority);
      if (session.identity.slo_latency_ns == 0 || !is_high) continue;
      const auto asked = static_cast<int>(
          std::min<uint64_t>(session.figures["slo_caution"], static_cast<uint64_t>(scheduler::SloFeedback::kSteps)));
      throttle_level = std::max(throttle_level.value_or(0), asked);
    }
  }
  return TuningFor(throttle_level, config_.turnaround_threshold);
}

void ExecutorPool::PlanTuning() {
  const scheduler::Tuning wanted = tuning();
  for (const ExecutorPtr& executor : executors_) {
    if (executor->link == nullptr || executor->wanted_tuning == wanted) continue;
    if (SendTuning(*executor, wanted)) executor->wanted_tuning = wanted;
  }
}

bool ExecutorPool::SendTuning(Executor& executor, const scheduler::Tuning& tuning) {
  const Status sent = executor.link->SendSetTuning(tuning);
  if (!sent.ok()) LOG_WARNING("executor {}: {}", executor.pid, sent.message());
  return sent.ok();
}

void ExecutorPool::OnTenantsChanged() {
  PlanTuning();
  for (const ExecutorPtr& executor : executors_) {
    if (executor->link == nullptr || !executor->wanted_tuning) continue;
    const bool has_objective = std::any_of(executor->sessions.begin(), executor->sessions.end(),
                                           [](const auto& each) { return each.second.identity.slo_latency_ns != 0; });
    if (has_objective) SendTuning(*executor, *executor->wanted_tuning);
  }
}

void ExecutorPool::PlanTimeSlices() {
  TimeSlicePlan plan(config_.best_effort_time_slice, config_.starvation_bound.value_or(std::chrono::nanoseconds(0)));
  for (const ExecutorPtr& executor : executors_) {
    if (executor->state == ExecutorState::kStarting || executor->state == ExecutorState::kRetiring) continue;
    plan.Add(executor->domain.priority_class, executor->used_gpus());
  }
  for (const ExecutorPtr& executor : executors_) {
    if (executor->link == nullptr) continue;
    ChoosePolicy(*executor);
    Executor::WantedTimeSlice wanted{plan.SlicesFor(executor->domain.priority_class, executor->used_gpus()),
                                     executor->policy.policy == scheduler::kTimeSlicesPolicy};
    if (executor->wanted_time_slice == wanted) continue;
    const Status sent = executor->link->SendSetTimeSlice(wanted.slices, wanted.is_left_to_slices);
    if (sent.ok()) executor->wanted_time_slice = std::move(wanted);
  }
}

void ExecutorPool::ChoosePolicy(Executor& executor) {
  scheduler::PolicyFacts facts{.configured = executor.configured_policy,
                               .is_software = executor.is_software,
                               .are_slices_left_alone = config_.best_effort_time_slice.count() == 0,
                               .are_classes_mixed = config_.share_contexts || executor.domain.name == kMixedDomain,
                               .answer = AnswerOf(executor.time_slices)};
  for (const auto& [id, session] : executor.sessions) {
    facts.are_classes_mixed |= session.identity.priority_class != static_cast<uint32_t>(executor.domain.priority_class);
  }
  using scheduler::TimeSliceAnswer;
  if (!time_slices_act_ && facts.answer != TimeSliceAnswer::kRefused) facts.answer = TimeSliceAnswer::kNoEffect;
  const scheduler::PolicyChoice choice = scheduler::ChoosePolicy(facts);
  if (choice == executor.policy) return;
  executor.policy = choice;
  // Until the driver has answered there is nothing to say.
  if (facts.configured == scheduler::kAutoPolicy && choice.policy == scheduler::kTimeSlicesPolicy &&
      facts.answer == TimeSliceAnswer::kNone) {
    return;
  }
  LOG_INFO("domain {}: policy {}: {}", executor.domain.Label(), choice.policy, choice.reason);
}

}  // namespace tally::server
