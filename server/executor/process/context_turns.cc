#include "server/executor/process/context_turns.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "server/executor/dispatch/high_priority_watch.h"
#include "server/executor/executor.h"

namespace tally::server {
namespace {

control::LinkSuspension SuspensionOn(int device) {
  switch (ChannelGroups::OfThisProcess().SuspensionOn(device)) {
    case ChannelGroups::Suspension::kNoGroups:
      break;
    case ChannelGroups::Suspension::kPossible:
      return control::LinkSuspension::kOn;
    case ChannelGroups::Suspension::kRefused:
      return control::LinkSuspension::kRefused;
  }
  return control::LinkSuspension::kOff;
}

}  // namespace

ContextTurns::ContextTurns(EventLoop& loop, const ExecutorOptions& options, DaemonLink& link)
    : loop_(loop), options_(options), link_(link) {}

ContextTurns::~ContextTurns() = default;

void ContextTurns::Start(Executor& executor) {
  executor_ = &executor;
  if (WantsRefreshing()) MakeRefreshers();
}

void ContextTurns::Stop() {
  suspenders_.clear();
  refreshers_.clear();
}

void ContextTurns::OnWanted(std::chrono::microseconds slice, bool is_left_to_slices) {
  ChannelGroups::OfThisProcess().WantTimeSlice(slice);
  wants_time_slice_ = slice.count() != 0;
  if (executor_ != nullptr) executor_->LeaveToTimeSlices(is_left_to_slices);
  Check();
}

void ContextTurns::OnConnected() {
  reported_time_slices_ = {};
  reported_contexts_ = {};
}

void ContextTurns::OnContextMade() {
  has_contexts_ = true;
  Check();
}

void ContextTurns::Check() {
  const ChannelGroups::TimeSlices slices = ChannelGroups::OfThisProcess().CheckTimeSlices();
  const bool are_set = wants_time_slice_ && slices.num_groups > 0 && slices.num_refused == 0;
  DaemonLink::ContextStates contexts = AllowSuspension(are_set);
  contexts.has_any = has_contexts_;
  for (const auto& refresher : refreshers_) contexts.num_refreshes += refresher->num_refreshes();
  const bool are_new = slices != reported_time_slices_;
  if (!are_new && contexts == reported_contexts_) return;
  reported_time_slices_ = slices;
  reported_contexts_ = contexts;
  link_.SendTimeSlices(slices, contexts);
  if (!are_new) return;
  if (slices.num_refused > 0) {
    LOG_WARNING("domain {}: the driver refuses {} of {} time slices: best-effort work keeps the GPU for up to {} us",
                options_.config.domain_name, slices.num_refused, slices.num_groups, slices.longest.count());
  } else if (are_set) {
    LOG_INFO("domain {}: time slices of {} us for {} channel groups", options_.config.domain_name,
             slices.longest.count(), slices.num_groups);
  }
}

// A starvation bound promises best-effort work its time while others keep the GPU.
bool ContextTurns::WantsSuspension() const {
  return executor_ != nullptr && options_.suspends && !options_.config.are_classes_mixed &&
         options_.config.priority_class == shm::PriorityClass::kBestEffort &&
         options_.config.starvation_bound.count() == 0 && executor_->high_priority_watch() != nullptr;
}

// `is_of_use`: the GPU is taken from this executor's contexts at once.
DaemonLink::ContextStates ContextTurns::AllowSuspension(bool is_of_use) {
  DaemonLink::ContextStates contexts;
  if (!WantsSuspension()) return contexts;
  using State = control::LinkSuspension;
  suspenders_.resize(static_cast<size_t>(executor_->num_devices()));
  for (int device = 0; device < executor_->num_devices(); ++device) {
    State state = is_of_use ? SuspensionOn(device) : State::kOff;
    auto& suspender = suspenders_[static_cast<size_t>(device)];
    if (suspender == nullptr && state == State::kOn) suspender = MakeSuspender(device);
    if (suspender != nullptr && !suspender->is_running()) suspender.reset();  // the next look tries again
    if (suspender == nullptr && state == State::kOn) state = State::kOff;
    const bool is_expected = state == State::kOn;
    if (suspender != nullptr) suspender->Enable(is_expected);
    executor_->ExpectSuspension(device, is_expected);
    contexts.suspension = std::max(contexts.suspension, state);
    if (suspender == nullptr) continue;
    contexts.num_suspensions += suspender->num_suspensions();
    contexts.num_standstills += suspender->num_standstills();
  }
  if (contexts.suspension == State::kRefused && !std::exchange(has_said_no_suspension_, true)) {
    LOG_WARNING(
        "domain {}: the driver does not suspend its contexts: best-effort work comes back in every gap of "
        "high-priority work",
        options_.config.domain_name);
  }
  return contexts;
}

std::unique_ptr<Suspender> ContextTurns::MakeSuspender(int device) {
  const auto suspend = [this, device](bool is_suspended) {
    const size_t num_groups = ChannelGroups::OfThisProcess().Suspend(device, is_suspended);
    if (is_suspended && num_groups == 0) loop_.Post([this] { Check(); });
    return num_groups;
  };
  return std::make_unique<Suspender>(*executor_->high_priority_watch(), device, suspend);
}

bool ContextTurns::WantsRefreshing() const {
  const bool may_run_high_priority_work =
      options_.config.are_classes_mixed || options_.config.priority_class == shm::PriorityClass::kHighPriority;
  return options_.refreshes && may_run_high_priority_work && !executor_->is_software() &&
         executor_->high_priority_watch() != nullptr;
}

void ContextTurns::MakeRefreshers() {
  for (int device = 0; device < executor_->num_devices(); ++device) {
    refreshers_.push_back(std::make_unique<Refresher>(*executor_->high_priority_watch(), device, [device] {
      return ChannelGroups::OfThisProcess().Preempt(device);
    }));
  }
}

}  // namespace tally::server
