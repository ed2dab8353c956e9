#include "server/executor/dispatch/device_queue.h"

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "scheduler/tuning.h"
#include "server/executor/channel/spin.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// A session that has not launched for so long is no company.
constexpr auto kCompany = std::chrono::seconds(1);
// How often a channel that sleeps looks for itself.
constexpr auto kLook = milliseconds(100);
// Looking for completed launches without sleep, where there are cores to spare: about 50 us, or 200 for room for a
// short launch, which others that are short will make within that.
constexpr int kPollingRounds = 40;
constexpr int kPollingRoundsForShort = 160;
constexpr int kPausesPerRound = 30;
constexpr auto kShortPause = microseconds(5);
constexpr auto kLongPause = microseconds(50);
// Of a tenant that is hundreds of launches ahead: several kernels end meanwhile.
constexpr auto kPauseAhead = microseconds(300);

}  // namespace

DeviceQueue::DeviceQueue(const DriverTable& driver, CompletionSource& completions, ActivityPage& page, PageWatch& watch,
                         const std::atomic<bool>& passes_all, const Clock& clock, int device,
                         const scheduler::PolicyRow& row, std::unique_ptr<scheduler::Policy> policy)
    : driver_(driver),
      page_(page),
      watch_(watch),
      passes_all_(passes_all),
      clock_(clock),
      device_(device),
      row_(row),
      completions_(completions),
      turnaround_ns_(scheduler::Tuning{}.turnaround_threshold.count()),
      policy_(std::move(policy)) {}

std::unique_ptr<DeviceQueue::Member> DeviceQueue::Add(AdmissionTenant& tenant, const scheduler::TenantShare& share) {
  const std::lock_guard lock(mutex_);
  auto member = std::make_unique<Member>(*this, tenant, next_number_++);
  member->id_ = policy_->AddTenant(share, clock_.Now());
  member->is_high_priority_ = share.tenant_class == scheduler::TenantClass::kHighPriority;
  ++num_members_;
  return member;
}

void DeviceQueue::Change(Member& member, const scheduler::TenantShare& share) {
  const std::lock_guard lock(mutex_);
  policy_->ChangeTenant(member.id_, share, clock_.Now());
  member.is_high_priority_ = share.tenant_class == scheduler::TenantClass::kHighPriority;
  // One of its launches may wait that need not any more.
  for (Waiter* waiter : waiting_) waiter->changed.notify_one();
}

void DeviceQueue::Remove(Member& member) {
  const std::lock_guard lock(mutex_);
  const TimePoint now = clock_.Now();
  for (const uint32_t index : in_flight_) {
    if (records_[index].member == &member) Finish(records_[index], now);
  }
  std::erase_if(in_flight_, [&](uint32_t index) { return records_[index].state == Record::State::kFree; });
  CHECK(member.num_in_flight_ == 0);
  policy_->RemoveTenant(member.id_, now);
  if (--num_members_ <= 1) last_change_of_it_ = {};
  if (last_number_ == member.number_) last_number_ = 0;
}

void DeviceQueue::WakeAll() {
  const std::lock_guard lock(mutex_);
  for (Waiter* waiter : waiting_) waiter->changed.notify_one();
}

void DeviceQueue::Tune(const scheduler::Tuning& tuning) {
  turnaround_ns_ = tuning.turnaround_threshold.count();
  const std::lock_guard lock(mutex_);
  policy_->Tune(tuning);
}

void DeviceQueue::ExpectDescheduling(bool is_expected) {
  const std::lock_guard lock(mutex_);
  policy_->ExpectDescheduling(is_expected);
  is_descheduling_expected_ = is_expected;
  Decide(clock_.Now());
}

bool DeviceQueue::MayPass(Member& member, bool can_yield) {
  if (!row_.lets_yielding_pass || !can_yield) {
    if (member.num_unasked_ == 0 || !is_descheduling_expected_.load(std::memory_order_relaxed)) return false;
  }
  if (watch_.IsClosed(device_)) return false;
  if (!can_yield) --member.num_unasked_;
  return true;
}

bool DeviceQueue::MayPassAlone(Member& member, TimePoint now) {
  if (last_number_ != member.number_) {
    if (last_number_ != 0) last_change_of_it_ = now;
    last_number_ = member.number_;
    alone_ = 0;
  }
  if (watch_.IsHighPriorityPresent(device_) || !waiting_.empty() || now - last_change_of_it_ < kCompany) return false;
  if (in_flight_.size() != member.num_in_flight_) Collect(now);
  if (in_flight_.size() != member.num_in_flight_) return false;
  alone_ = member.number_;
  return true;
}

scheduler::LaunchAsked DeviceQueue::Complete(scheduler::LaunchAsked asked, CUstream stream,
                                             nanoseconds duration) const {
  if (duration != nanoseconds(0)) asked.duration = duration;
  asked.stream = reinterpret_cast<uintptr_t>(stream);
  const nanoseconds turnaround = asked.turnaround != nanoseconds(0)
                                     ? asked.turnaround
                                     : nanoseconds(turnaround_ns_.load(std::memory_order_relaxed));
  if (asked.can_yield) {
    // However long it takes, this is for how long it keeps others from the GPU; behind another one that can yield, too.
    asked.duration = asked.duration == nanoseconds(0) ? turnaround : std::min(asked.duration, turnaround);
  }
  // Only where somebody may come for whom it matters: it costs what the GPU waits between two launches.
  asked.is_short = !asked.can_yield && watch_.IsHighPriorityPresent(device_) &&
                   (asked.is_short || scheduler::IsShort(asked.duration, turnaround));
  const uint64_t multiprocessors = multiprocessors_.load(std::memory_order_relaxed);
  if (asked.num_blocks != 0 && asked.num_blocks < multiprocessors) {
    asked.fill = static_cast<uint16_t>(asked.num_blocks * scheduler::kFillsGpu / multiprocessors);
    asked.fill = std::max<uint16_t>(asked.fill, 1);
  }
  return asked;
}

DispatchPass DeviceQueue::Enter(Member& member, const DispatchPlace& place, const scheduler::LaunchAsked& asked) {
  if (MayPass(member, asked.can_yield)) return {};
  LaunchCosts::Cost* const cost = member.costs_ ? &member.costs_->Of(asked.kind) : nullptr;
  DispatchPass pass;
  const bool is_alone =
      alone_.load(std::memory_order_relaxed) == member.number_ && !watch_.IsHighPriorityPresent(device_);
  if (!is_alone) pass = Ask(member, place, asked, cost);
  if (!pass.may_go || cost == nullptr) return pass;
  pass.sample = member.costs_->Begin(*cost, place.stream);
  // Of the first launches of a kind nothing is known yet: they are short by themselves or soon outweighed.
  member.tenant_.figures.Add("gpu_time_ns", cost->duration());
  return pass;
}

DispatchPass DeviceQueue::Ask(Member& member, const DispatchPlace& place, const scheduler::LaunchAsked& its_asking,
                              const LaunchCosts::Cost* cost) {
  std::unique_lock lock(mutex_);
  TimePoint now = clock_.Now();
  if (multiprocessors_ == 0) {
    CUdevice device = 0;
    int count = 0;
    driver_.cuCtxGetDevice(&device);
    driver_.cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    multiprocessors_ = static_cast<uint64_t>(std::max(count, 1));
  }
  if (watch_.is_open() || MayPassAlone(member, now)) return {};
  const nanoseconds duration = cost != nullptr ? cost->duration() : nanoseconds(0);
  const scheduler::LaunchAsked asked = Complete(its_asking, place.stream, duration);
  const scheduler::LaunchId id = policy_->OnSubmitted(member.id_, asked, now);
  while (records_.size() <= id.index) records_.emplace_back();
  Record& record = records_[id.index];
  Waiter waiter;
  waiter.member = &member;
  waiter.is_high_priority = place.is_high_priority;
  waiter.is_short = asked.is_short;
  record.id = id;
  record.member = &member;
  record.waiter = &waiter;
  record.cost = cost;
  record.state = Record::State::kWaiting;
  Decide(now);
  if (!waiter.granted) {
    now = clock_.Now();
    Collect(now);
    Decide(now);
  }
  if (!waiter.granted) {
    Wait(lock, waiter);
    member.tenant_.figures.Add("held_launches");
    member.tenant_.figures.Add("held_ns", clock_.Now() - now);
  }
  if (!waiter.granted) {
    policy_->Withdraw(record.id, clock_.Now());
    record.state = Record::State::kFree;
    return {.may_go = !member.tenant_.has_left()};
  }
  member.num_unasked_ = waiter.granted->num_unasked;
  return {.record = &record, .is_forced = waiter.granted->is_forced};
}

void DeviceQueue::Leave(Member& member, const DispatchPlace& place, const DispatchPass& pass) {
  if (member.costs_) member.costs_->End(pass.sample, place.stream);
  if (pass.record == nullptr) return;
  auto* record = static_cast<Record*>(pass.record);
  completions_.Put(place.stream, &record->done);  // without a mark, because the context is lost, it has ended
  record->state.store(Record::State::kLaunched, std::memory_order_release);
}

bool DeviceQueue::MustStopWaiting(const Waiter& waiter) const {
  if (waiter.member->tenant_.has_left() || watch_.is_open() || passes_all_.load(std::memory_order_relaxed)) return true;
  // It was made high-priority meanwhile, and those do not ask.
  return row_.minds_class && !row_.minds_levels && waiter.member->is_high_priority_;
}

void DeviceQueue::Wait(std::unique_lock<std::mutex>& lock, Waiter& waiter) {
  waiting_.push_back(&waiter);
  const bool is_high = waiter.is_high_priority;
  bool& is_looked_after = is_looked_after_[is_high ? 1 : 0];
  while (!waiter.granted && !MustStopWaiting(waiter)) {
    if (is_looked_after) {
      waiter.changed.wait_for(lock, kLook);
      continue;
    }
    is_looked_after = true;
    LookAfter(lock, waiter);
    is_looked_after = false;
  }
  std::erase(waiting_, &waiter);
  // Somebody else looks from now on.
  if (is_looked_after) return;
  const auto next = std::ranges::find(waiting_, is_high, &Waiter::is_high_priority);
  if (next != waiting_.end()) (*next)->changed.notify_one();
}

void DeviceQueue::LookAfter(std::unique_lock<std::mutex>& lock, Waiter& waiter) {
  for (int round = 0; !waiter.granted && !MustStopWaiting(waiter); ++round) {
    const size_t num_before = in_flight_.size();
    Pause(lock, waiter, round);
    const TimePoint now = clock_.Now();
    Collect(now);
    Decide(now);
    if (in_flight_.size() != num_before) round = 0;
  }
}

void DeviceQueue::Pause(std::unique_lock<std::mutex>& lock, const Waiter& waiter, int round) {
  // High-priority work waits for higher levels only.
  const bool is_closed = !waiter.is_high_priority && watch_.IsClosed(device_);
  nanoseconds pause = std::min<nanoseconds>(kShortPause * (1 << std::clamp(round - kPollingRounds, 0, 8)), kLongPause);
  nanoseconds closed_pause = PageWatch::kLook;
  if (in_flight_.empty() || is_closed) {
    const std::optional<TimePoint> wake_at = policy_->WakeAt(clock_.Now());
    if (wake_at) closed_pause = std::clamp<nanoseconds>(*wake_at - clock_.Now(), kShortPause, PageWatch::kLook);
    if (in_flight_.empty()) pause = wake_at ? closed_pause : kLongPause;
  }
  const bool is_ahead = is_descheduling_expected_.load(std::memory_order_relaxed);
  if (is_ahead && !in_flight_.empty()) pause = kPauseAhead;
  const int polling_rounds = waiter.is_short ? kPollingRoundsForShort : kPollingRounds;
  const bool is_polling = !is_ahead && !in_flight_.empty() && round < polling_rounds && MaySpinLong();
  lock.unlock();
  if (is_closed) {
    watch_.WaitWhileClosed(device_, closed_pause);
  } else if (is_polling) {
    PauseBetweenPolls(kPausesPerRound);
  } else {
    std::this_thread::sleep_for(pause);
  }
  lock.lock();
}

void DeviceQueue::Decide(TimePoint now) {
  const auto device = static_cast<uint32_t>(device_);
  policy_->OnHighPriorityElsewhere(page_.IsBusy(device), page_.OpensAt(device), now);
  while (const std::optional<scheduler::Decision> decision = policy_->Next(now)) {
    if (decision->kind == scheduler::Decision::Kind::kYield) continue;  // PersistentRuns has seen the page by itself
    Record& record = records_[decision->launch.index];
    record.state = Record::State::kLaunching;
    in_flight_.push_back(decision->launch.index);
    ++record.member->num_in_flight_;
    record.waiter->granted = *decision;
    record.waiter->changed.notify_one();
    record.waiter = nullptr;
  }
}

void DeviceQueue::Collect(TimePoint now) {
  Look look;
  bool has_any_ended = false;
  for (const uint32_t index : in_flight_) {
    Record& record = records_[index];
    if (record.state.load(std::memory_order_acquire) != Record::State::kLaunched) continue;
    if (!look.HasEnded(record.done)) continue;
    Finish(record, now);
    has_any_ended = true;
  }
  if (!has_any_ended) return;
  std::erase_if(in_flight_, [&](uint32_t index) { return records_[index].state == Record::State::kFree; });
}

void DeviceQueue::Finish(Record& record, TimePoint now) {
  if (record.cost != nullptr) record.member->costs_->Collect();
  policy_->OnCompleted(record.id, record.cost != nullptr ? record.cost->duration() : nanoseconds(0), now);
  --record.member->num_in_flight_;
  record.done.Clear();
  record.member = nullptr;
  record.state = Record::State::kFree;
}

}  // namespace tally::server
