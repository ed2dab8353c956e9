#include "tests/scheduler/model_executor.h"

#include <algorithm>

#include "base/check.h"

namespace tally::scheduler {

LaunchId ModelExecutor::Submit(TenantId tenant, const GpuModel::Work& work, Nanoseconds estimate, bool may_yield,
                               uint64_t tag) {
  LaunchAsked asked;
  asked.duration = estimate;
  asked.stream = work.stream;
  asked.fill = work.fill;
  asked.can_yield = may_yield && work.can_yield;
  const LaunchId id = policy_.OnSubmitted(tenant, asked, now());
  if (id.index >= launches_.size()) launches_.resize(id.index + 1);
  CHECK(launches_[id.index].state == State::kGone);
  launches_[id.index] = {.id = id, .tenant = tenant, .work = work, .state = State::kWaiting, .tag = tag};
  launches_[id.index].submitted_at = now();
  launches_[id.index].work.can_yield = asked.can_yield;
  return id;
}

void ModelExecutor::RemoveTenant(TenantId tenant) {
  policy_.RemoveTenant(tenant, now());
  for (Launch& launch : launches_) {
    if (launch.tenant != tenant) continue;
    if (launch.state == State::kYielded) gpu_.Forget(launch.id.index, now());
    if (launch.state == State::kYielded || launch.state == State::kWaiting) launch.state = State::kGone;
  }
}

void ModelExecutor::CarryOut(const Decision& decision) {
  if (decision.kind == Decision::Kind::kYield) {
    observer_.OnYieldAsked();
    gpu_.AskToYield(now());
    return;
  }
  if (!policy_.IsPresent(decision.tenant)) return observer_.OnMistake("a tenant that has left");
  if (decision.launch.index >= launches_.size()) return observer_.OnMistake("a launch that never was");
  Launch& launch = launches_[decision.launch.index];
  if (launch.id != decision.launch || launch.state == State::kGone) return observer_.OnMistake("a launch that is gone");
  if (launch.state == State::kInFlight) return observer_.OnMistake("a launch that is in flight");
  launch.run_through = decision.run_through;
  if (launch.state == State::kYielded) {
    launch.state = State::kInFlight;
    gpu_.Resume(decision.launch.index, launch.work.can_yield && !decision.run_through, now());
  } else {
    launch.state = State::kInFlight;
    launch.dispatched_at = now();
    GpuModel::Work work = launch.work;
    work.can_yield = work.can_yield && !decision.run_through;
    gpu_.Dispatch(decision.launch.index, work, now());
  }
  const Launch dispatched = launch;  // the observer may submit
  observer_.OnDispatched(dispatched, decision);
}

void ModelExecutor::Decide() {
  do {
    while (const std::optional<Decision> decision = policy_.Next(now())) CarryOut(*decision);
    TakeEnds();  // launches that yielded before they had started
  } while (gpu_.NextEnd() && *gpu_.NextEnd() <= now());
  while (const std::optional<Decision> decision = policy_.Next(now())) CarryOut(*decision);
  observer_.OnDecided();
}

void ModelExecutor::TakeEnds() {
  while (const std::optional<GpuModel::End> end = gpu_.TakeEnd(now())) {
    Launch& launch = launches_[end->launch];
    const LaunchId id = launch.id;
    const Launch ended = launch;
    const bool is_gone = !end->has_yielded || !policy_.IsPresent(launch.tenant);
    launch.state = is_gone ? State::kGone : State::kYielded;
    if (end->has_yielded) {
      launch.has_yielded = true;
      if (is_gone) gpu_.Forget(end->launch, now());
      policy_.OnYielded(id, end->gpu_time, now());
    } else {
      policy_.OnCompleted(id, end->gpu_time, now());
    }
    observer_.OnEnded(ended, *end);
  }
}

bool ModelExecutor::Step(TimePoint limit) {
  std::optional<TimePoint> next = gpu_.NextEnd();
  const std::optional<TimePoint> wake_at = policy_.WakeAt(now());
  if (wake_at && (!next || *wake_at < *next)) next = std::max(*wake_at, now() + Nanoseconds(1));
  if (!next || *next > limit) return false;
  observer_.OnAdvance(*next);
  clock_.Advance(*next - now());
  TakeEnds();
  Decide();
  return true;
}

void ModelExecutor::RunUntil(TimePoint until) {
  while (Step(until)) {
  }
  if (until > now()) {
    observer_.OnAdvance(until);
    clock_.Advance(until - now());
  }
}

void ModelExecutor::RunToEnd(TimePoint limit) {
  while (Step(limit)) {
  }
}

}  // namespace tally::scheduler
