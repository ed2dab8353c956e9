#include "server/executor/issue/gated_queues.h"

#include <algorithm>

#include "base/log.h"
#include "base/thread.h"
#include "server/executor/channel/spin.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kLook = milliseconds(10);               // how often at least it looks what is complete
constexpr auto kLookStopped = microseconds(50);        // the same while something can go on any moment
constexpr auto kLongestTurnaround = milliseconds(20);  // then it counts as that and is no longer waited for
constexpr auto kPause = microseconds(20);              // of who waits for launches to end
// A kernel may wait for one that the waiting thread has yet to launch on another stream.
constexpr auto kLongestWaitForRoom = milliseconds(250);
// A full queue is done in less. Programs expect calls that do not wait to come back, and may ask whether a longer
// kernel has ended.
constexpr auto kLongestWaitForEnd = milliseconds(20);
// A sleep takes several times as long as asked for, and the GPU waits meanwhile.
constexpr auto kLongestPolling = milliseconds(2);

// Others must get the lock meanwhile: what is waited for is done with it.
template <typename Predicate>
void WaitUntil(std::unique_lock<std::mutex>& lock, const Predicate& is_so) {
  while (!is_so()) {
    lock.unlock();
    std::this_thread::sleep_for(kLookStopped);
    lock.lock();
  }
}

bool HasLeft(const std::shared_ptr<RunsOwner>& owner) {
  return owner != nullptr && owner->has_left.load(std::memory_order_relaxed);
}
bool RunsThrough(const std::shared_ptr<RunsOwner>& owner) {
  return owner != nullptr && owner->is_high_priority.load(std::memory_order_relaxed);
}

}  // namespace

std::unique_ptr<GatedQueues> GatedQueues::Create(const DriverTable& driver, CompletionSource& completions,
                                                 CUcontext context, int device, HighPriorityWatch* watch,
                                                 std::function<void(CUresult)> on_failure, const Clock& clock) {
  std::unique_ptr<GatedQueues> queues(
      new GatedQueues(driver, completions, context, device, watch, std::move(on_failure), clock));
  if (const CUresult result = queues->controls_.Open(); result != CUDA_SUCCESS) {
    LOG_WARNING("device {}: launches cannot be gated ({})", device, CudaErrorName(driver, result));
    return nullptr;
  }
  auto thread = StartThread("gated-queues", [all = queues.get()] {
    all->driver_.cuCtxSetCurrent(all->context_);
    all->Watch();
  });
  if (!thread) {
    LOG_WARNING("device {}: launches cannot be gated ({})", device, thread.error().message());
    return nullptr;
  }
  queues->thread_ = std::move(*thread);
  return queues;
}

GatedQueues::~GatedQueues() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  driver_.cuCtxSetCurrent(context_);
}

std::unique_ptr<GatedQueues::Stream> GatedQueues::Open(CUstream stream, std::shared_ptr<RunsOwner> owner) {
  const ContextCall call(*this);
  const std::lock_guard lock(mutex_);
  CUdeviceptr place = 0;
  if (controls_.TakePlace(&place) != CUDA_SUCCESS) return nullptr;
  auto member = std::make_unique<Member>(controls_, stream, place, std::move(owner));
  if (member->queue.Open() != CUDA_SUCCESS) return nullptr;
  members_.push_back(std::move(member));
  return std::make_unique<Stream>(*this, *members_.back());
}

GatedQueues::Stream::~Stream() {
  const std::lock_guard lock(all_.mutex_);
  member_.queue.Seal();  // from now on its stream is not needed to let it go on
  member_.is_closed = true;
  all_.changed_.notify_all();
}

CUresult GatedQueues::Stream::Launch(const GatedForm& form, PendingLaunch&& launch) {
  return all_.Launch(member_, form, std::move(launch));
}

bool GatedQueues::Stream::Takes(const Transfer& transfer) const {
  if (!all_.controls_.transfers.Takes(transfer)) return false;
  const std::lock_guard lock(all_.mutex_);
  member_.queue.Sweep();
  return !member_.queue.is_sealed();
}

CUresult GatedQueues::Stream::Put(const Transfer& transfer) {
  GatedForm form;
  PendingLaunch launch = all_.controls_.transfers.LaunchOf(transfer, &form);
  const CUresult result = all_.Launch(member_, form, std::move(launch));
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(all_.mutex_);
  ++all_.controls_.counts.num_transfers;
  return result;
}

CUresult GatedQueues::Stream::Seal() {
  std::unique_lock lock(all_.mutex_);
  const GatedQueue& queue = member_.queue;
  if (queue.is_sealed()) return CUDA_SUCCESS;  // and to ask whether its stream has ended would spoil a capture there
  if (all_.watch_.IsOneOfThem()) all_.AwaitEnd(member_, lock);
  WaitUntil(lock, [&] { return !queue.is_stopped() || queue.empty() || queue.has_marker() || all_.MayWaitLocked(); });
  return member_.queue.Seal();
}

void GatedQueues::AwaitRoom(Member& member, uint64_t num_numbers, std::unique_lock<std::mutex>& lock) {
  const TimePoint since = clock_.Now();
  for (;;) {
    if (!member.queue.HasNumbersFor(num_numbers)) member.queue.MarkLast();
    member.queue.Sweep();
    const bool has_numbers = member.queue.HasNumbersFor(num_numbers);
    if (!has_numbers && member.queue.empty() && !member.queue.is_stopped()) member.queue.Renumber();
    const bool has_waited = clock_.Now() - since >= kLongestWaitForRoom && !member.queue.is_stopped();
    const size_t most = member.queue.is_stopped() ? kMostWhileStopped : kMostInFlight;
    const bool has_room = member.queue.size() < most || has_waited;
    if (member.queue.HasNumbersFor(num_numbers) && has_room) return;
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

// Instead of a marker: no stream waits, and what was stopped goes on where it was. Launches that wait in two streams
// make all kernels of the context start later, those of high-priority programs, too (docs/scheduling.md#refreshing).
void GatedQueues::AwaitEnd(Member& member, std::unique_lock<std::mutex>& lock) {
  TimePoint::duration waited{0};   // for what runs, all periods together
  TimePoint::duration stopped{0};  // the last period, if it was stopped: counts if something runs at its end, too
  for (;;) {
    member.queue.MarkLast();
    member.queue.Sweep();
    const bool is_stopped = member.queue.is_stopped();
    // Told to stop, a long block runs on: what is waited for then is the program's kernel, as if nobody had said so.
    const bool runs = !is_stopped || member.queue.HasLeft() == CUDA_ERROR_NOT_READY;
    if (runs && is_stopped) waited += stopped;
    stopped = stopped.zero();
    if (member.queue.empty() || (runs && waited >= kLongestWaitForEnd)) return;
    // Whoever stops queues needs the lock at once.
    lock.unlock();
    if (is_stopped) {
      const TimePoint since = clock_.Now();
      std::this_thread::sleep_for(kLookStopped);
      stopped = clock_.Now() - since;
    } else {
      const TimePoint since = clock_.Now();
      const auto takes = [&] { return waited + (clock_.Now() - since); };
      while (!member.queue.HasEnded() && takes() < kLongestWaitForEnd) {
        if (MaySpinLong() && takes() < kLongestPolling) {
          PauseBetweenPolls();
        } else {
          std::this_thread::sleep_for(kPause);
        }
      }
      waited = takes();
    }
    lock.lock();
  }
}

CUresult GatedQueues::Launch(Member& member, const GatedForm& form, PendingLaunch&& launch) {
  std::unique_lock lock(mutex_);
  AwaitRoom(member, form.NumNumbers(launch.shape), lock);
  if (is_closed_ && MayStopLocked(member.queue) && !RunsThrough(member.owner) && !HasLeft(member.owner)) {
    if (const CUresult r = StopLocked(member, clock_.Now()); r != CUDA_SUCCESS) return r;
  }
  watch_.OnLaunch();
  const bool was_empty = member.queue.empty();
  const CUresult result = member.queue.Launch(form, std::move(launch));
  if (was_empty) changed_.notify_all();
  return result;
}

CUresult GatedQueues::StopLocked(Member& member, TimePoint seen_at) {
  if (member.queue.is_stopped()) return CUDA_SUCCESS;
  ++num_times_stopped_;
  const CUresult result = member.queue.Stop();
  const TimePoint written_at = clock_.Now();
  if (result != CUDA_SUCCESS || member.queue.empty()) return result;
  if (member.owner != nullptr) member.owner->figures.Add("yields");
  // What has left by now was not running, or as good as not.
  if (member.queue.HasLeft() != CUDA_ERROR_NOT_READY) return CUDA_SUCCESS;
  // What was announced before there was anything to look for was not seen late.
  const TimePoint announced_at = std::clamp(watch_.ClosedSince(), std::min(looked_at_, seen_at), seen_at);
  member.leaving = {announced_at, seen_at, written_at};
  return CUDA_SUCCESS;
}

bool GatedQueues::IsLeaving(Member& member) {
  if (!member.leaving) return false;
  const TimePoint now = clock_.Now();
  const Member::Leaving leaving = *member.leaving;
  const CUresult state = member.queue.HasLeft();
  if (state == CUDA_ERROR_NOT_READY && now - leaving.written_at < kLongestTurnaround) return true;
  member.leaving.reset();
  GatedQueue::Standing standing;
  if (state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY) return false;
  // One of which nothing had begun says nothing about how long it takes to leave.
  if (member.queue.Read(&standing) != CUDA_SUCCESS || standing.last == nullptr) return false;
  if (standing.last->on_turnaround) standing.last->on_turnaround(now - leaving.announced_at);
  if (member.owner == nullptr) return false;
  member.owner->CountYield(leaving.seen_at - leaving.announced_at, leaving.written_at - leaving.seen_at,
                           now - leaving.written_at);
  member.owner->CountStop(now - leaving.written_at);
  member.owner->figures.Add("resumed_launches", standing.num_launches);
  member.owner->figures.Add("resumed_blocks", standing.num_blocks);
  return false;
}

bool GatedQueues::IsAnyStoppedLocked() const {
  return std::any_of(members_.begin(), members_.end(), [](const auto& member) { return member->queue.is_stopped(); });
}

bool GatedQueues::MayWaitLocked() const {
  const auto num_waiting = std::count_if(members_.begin(), members_.end(), [](const auto& member) {
    return member->queue.is_stopped() && member->queue.has_marker();
  });
  return static_cast<size_t>(num_waiting) < kMostWaiting;
}

void GatedQueues::BeginContextCall(bool is_urgent) {
  std::unique_lock lock(mutex_);
  if (is_urgent) ++num_context_calls_;
  WaitUntil(lock, [&] { return !IsAnyStoppedLocked(); });
  if (!is_urgent) ++num_context_calls_;
  is_closed_ = false;
}

void GatedQueues::EndContextCall() {
  const std::lock_guard lock(mutex_);
  --num_context_calls_;
}

void GatedQueues::AwaitFunction(CUfunction function) {
  std::unique_lock lock(mutex_);
  const auto is_held = [&] {
    return std::any_of(members_.begin(), members_.end(), [&](const auto& member) {
      member->queue.MarkLast();
      member->queue.Sweep();
      return member->queue.Holds(function);
    });
  };
  WaitUntil(lock, [&] { return !is_held(); });
}

GatedCounts GatedQueues::counts() const {
  const std::lock_guard lock(mutex_);
  return controls_.counts;
}

bool GatedQueues::IsIdleLocked() const {
  return std::all_of(members_.begin(), members_.end(), [](const auto& member) {
    return member->queue.empty() && !member->queue.is_stopped() && !member->is_closed;
  });
}

std::optional<uint64_t> GatedQueues::OpenPhase() const {
  const std::lock_guard lock(mutex_);
  return is_closed_ || IsAnyStoppedLocked() ? std::nullopt : std::optional(num_times_stopped_);
}

void GatedQueues::LookAt(Member& member, bool is_closed, TimePoint seen_at, Looked* looked) {
  GatedQueue& queue = member.queue;
  const bool has_left = HasLeft(member.owner);
  const bool may_run = !is_closed || RunsThrough(member.owner);
  CUresult result = CUDA_SUCCESS;
  if (!queue.is_stopped()) {
    if (may_run || has_left) {
      queue.MarkLast();
      queue.Sweep();
    } else if (!queue.empty() && MayStopLocked(queue)) {
      result = StopLocked(member, seen_at);
      looked->is_any_leaving |= member.leaving.has_value();
    }
  } else if (has_left) {
    member.leaving.reset();
    result = queue.TryAbandon();
  } else if (IsLeaving(member)) {
    looked->is_any_leaving = true;
  } else if (may_run) {
    result = queue.TryResume();
  }
  if (result == CUDA_ERROR_NOT_READY) {
    looked->is_any_open = true;
  } else if (result != CUDA_SUCCESS) {
    on_failure_(result);
  }
}

GatedQueues::Looked GatedQueues::Look(bool is_closed, TimePoint seen_at) {
  const std::lock_guard lock(mutex_);
  Looked looked;
  looked.is_kept_open = is_closed && num_context_calls_ != 0;
  is_closed = is_closed && num_context_calls_ == 0;
  is_closed_ = is_closed;
  for (auto at = members_.begin(); at != members_.end();) {
    const auto member = at++;
    LookAt(**member, is_closed, seen_at, &looked);
    if ((*member)->is_closed && (*member)->queue.empty()) members_.erase(member);
  }
  if (!is_closed) looked_at_ = seen_at;
  return looked;
}

void GatedQueues::Watch() {
  std::optional<Standstill> wait;  // while some queue could go on but for what has not left the GPU yet
  for (;;) {
    bool is_closed = false;
    {
      std::unique_lock lock(mutex_);
      // While it is closed somebody must see it open again, or what is launched meanwhile would stay.
      if (!is_closed_ && IsIdleLocked()) {
        changed_.wait(lock, [&] { return is_stopping_ || !IsIdleLocked(); });
        looked_at_ = clock_.Now();
      }
      if (is_stopping_ && IsIdleLocked()) return;
    }
    is_closed = watch_.IsClosed();
    const Looked looked = Look(is_closed, clock_.Now());
    if (is_closed || !looked.is_any_open) wait.reset();
    if (!is_closed && looked.is_any_open) {
      if (!wait) wait = watch_.NewStandstill(clock_.Now());
      wait->OnWaiting(clock_.Now());
    }
    if (looked.is_any_leaving) {
      std::this_thread::yield();
    } else if (is_closed && (looked.is_any_open || looked.is_kept_open)) {
      std::this_thread::sleep_for(kLookStopped);
    } else if (is_closed) {
      watch_.WaitWhileClosed(kLook);
    } else {
      watch_.WaitWhileOpen(looked.is_any_open ? kLookStopped : kLook);
    }
  }
}

}  // namespace tally::server
