#include "server/executor/process/context_turns.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "server/executor/dispatch/high_priority_watch.h"
#include "server/executor/executor.h"

namespace tally::server {
namespace {

control::LinkDescheduling DeschedulingOn(int device) {
  switch (GpuChannelGroups::OfThisProcess().DeschedulingOn(device)) {
    case GpuChannelGroups::Descheduling::kNoGroups:
      break;
    case GpuChannelGroups::Descheduling::kPossible:
      return control::LinkDescheduling::kOn;
    case GpuChannelGroups::Descheduling::kRefused:
      return control::LinkDescheduling::kRefused;
  }
  return control::LinkDescheduling::kOff;
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
  deschedulers_.clear();
  refreshers_.clear();
}

void ContextTurns::OnWanted(const std::vector<std::chrono::microseconds>& slices, bool is_left_to_slices) {
  GpuChannelGroups::OfThisProcess().WantTimeSlices(slices);
  if (executor_ != nullptr) {
    executor_->LeaveToTimeSlices(is_left_to_slices);
    executor_->NoteTimeSlices(slices);
    uint64_t devices = 0;
    for (size_t device = 0; device < slices.size(); ++device) {
      if (slices[device].count() != 0) devices |= uint64_t{1} << device;
    }
    const bool is_high = options_.config.priority_class == shm::PriorityClass::kHighPriority;
    executor_->TakePrecedence(is_high ? devices : 0);
    // A high-priority executor has a slice of its own only while there is a best-effort one.
    executor_->AllowHolding(is_high && is_left_to_slices ? devices : 0);
  }
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
  const GpuChannelGroups::TimeSlices slices = GpuChannelGroups::OfThisProcess().CheckTimeSlices();
  DaemonLink::ContextStates contexts = AllowDescheduling();
  contexts.has_any = has_contexts_;
  if (executor_ != nullptr) contexts.used_devices = executor_->used_devices();
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
  } else if (slices.num_wanted > 0) {
    LOG_INFO("domain {}: time slices of {} to {} us for {} GPU channel groups", options_.config.domain_name,
             slices.shortest.count(), slices.longest.count(), slices.num_groups);
  }
}

// A starvation bound promises best-effort work its time while others keep the GPU.
bool ContextTurns::WantsDescheduling() const {
  return executor_ != nullptr && options_.deschedules && !options_.config.are_classes_mixed &&
         options_.config.priority_class == shm::PriorityClass::kBestEffort &&
         options_.config.starvation_bound.count() == 0 && executor_->high_priority_watch() != nullptr;
}

// Of use where the GPU is taken from this executor's contexts at once.
DaemonLink::ContextStates ContextTurns::AllowDescheduling() {
  DaemonLink::ContextStates contexts;
  if (!WantsDescheduling()) return contexts;
  using State = control::LinkDescheduling;
  deschedulers_.resize(static_cast<size_t>(executor_->num_devices()));
  for (int device = 0; device < executor_->num_devices(); ++device) {
    State state = GpuChannelGroups::OfThisProcess().IsTimeSliceSet(device) ? DeschedulingOn(device) : State::kOff;
    auto& descheduler = deschedulers_[static_cast<size_t>(device)];
    if (descheduler == nullptr && state == State::kOn) descheduler = MakeDescheduler(device);
    if (descheduler != nullptr && !descheduler->is_running()) descheduler.reset();  // the next look tries again
    if (descheduler == nullptr && state == State::kOn) state = State::kOff;
    const bool is_expected = state == State::kOn;
    if (descheduler != nullptr) descheduler->Enable(is_expected);
    executor_->ExpectDescheduling(device, is_expected);
    contexts.descheduling = std::max(contexts.descheduling, state);
    if (descheduler == nullptr) continue;
    contexts.num_deschedulings += descheduler->num_deschedulings();
    contexts.num_standstills += descheduler->num_standstills();
  }
  if (contexts.descheduling == State::kRefused && !std::exchange(has_said_no_descheduling_, true)) {
    LOG_WARNING(
        "domain {}: the driver does not deschedule its contexts: best-effort work comes back in every gap of "
        "high-priority work",
        options_.config.domain_name);
  }
  return contexts;
}

std::unique_ptr<Descheduler> ContextTurns::MakeDescheduler(int device) {
  // On the descheduler's thread; `since`: it is descheduled.
  const auto deschedule = [this, device, since = std::optional<TimePoint>()](bool is_descheduled) mutable {
    const size_t num_groups = GpuChannelGroups::OfThisProcess().Deschedule(device, is_descheduled);
    const TimePoint now = SteadyClock().Now();
    if (is_descheduled && num_groups > 0 && !since) since = now;
    if (!is_descheduled && num_groups == 0 && since) {
      executor_->NoteInTrace(control::TraceKind::kDescheduled, device, *since, now);
      since.reset();
    }
    if (is_descheduled && num_groups == 0) loop_.Post([this] { Check(); });
    return num_groups;
  };
  return std::make_unique<Descheduler>(*executor_->high_priority_watch(), device, deschedule);
}

bool ContextTurns::WantsRefreshing() const {
  const bool may_run_high_priority_work =
      options_.config.are_classes_mixed || options_.config.priority_class == shm::PriorityClass::kHighPriority;
  return options_.refreshes && may_run_high_priority_work && !executor_->is_software() &&
         executor_->high_priority_watch() != nullptr;
}

void ContextTurns::MakeRefreshers() {
  for (int device = 0; device < executor_->num_devices(); ++device) {
    refreshers_.push_back(std::make_unique<Refresher>(*executor_->high_priority_watch(), device, [this, device] {
      const TimePoint begin = SteadyClock().Now();
      const size_t num_groups = GpuChannelGroups::OfThisProcess().Preempt(device);
      if (num_groups > 0) {
        executor_->NoteInTrace(control::TraceKind::kRefreshed, device, begin, SteadyClock().Now());
      }
      return num_groups;
    }));
  }
}

}  // namespace tally::server
