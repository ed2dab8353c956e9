#include "server/executor/dispatch/trace.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/thread.h"

namespace tally::server {
namespace {

using control::TraceEvent;
using control::TraceKind;

// A ring holds what a session puts in about ten milliseconds.
constexpr std::chrono::milliseconds kRound{2};
// An event's time is a float of milliseconds from the anchor: exact to a tenth of a microsecond for so long.
constexpr std::chrono::seconds kAnchorFor{1};
constexpr std::chrono::milliseconds kAnchorWait{20};
constexpr int kAnchorTries = 5;
constexpr std::chrono::milliseconds kLastWait{200};
// Of the records whose work has not ended: a program is that far ahead of the GPU.
constexpr size_t kMostPending = 16'384;

int64_t Ns(TimePoint time) { return time.time_since_epoch().count(); }

}  // namespace

void TraceSwitch::Enter(Trace& trace, uint64_t session_id, uint32_t uid, std::optional<uint32_t> owner_uid) {
  trace_ = &trace;
  session_id_ = session_id;
  uid_ = uid;
  owner_uid_ = owner_uid;
  trace.Enter(*this);
}

TraceSwitch::~TraceSwitch() {
  if (trace_ != nullptr) trace_->Leave(*this);
}

void TraceSwitch::OnRequest(TimePoint now, std::chrono::nanoseconds took) {
  if (!is_on_.load(std::memory_order_relaxed)) return;
  TraceEvent event{};
  event.session_id = session_id_;
  event.kind = static_cast<uint16_t>(TraceKind::kRequest);
  event.begin_ns = static_cast<uint64_t>(Ns(now - took));
  event.end_ns = static_cast<uint64_t>(Ns(now));
  trace_->AddEvent(event);
}

void Trace::Enter(TraceSwitch& session) {
  const std::lock_guard lock(mutex_);
  sessions_.push_back(&session);
  if (is_on_.load(std::memory_order_relaxed) && IsWanted(session)) {
    Prepare(session);
    session.is_on_.store(true, std::memory_order_relaxed);
  }
}

void Trace::Leave(TraceSwitch& session) {
  const std::lock_guard lock(mutex_);
  std::erase(sessions_, &session);
  if (is_on_.load(std::memory_order_relaxed)) TakeFrom(session);
  for (auto& ring : session.rings_) delete ring.exchange(nullptr);
}

bool Trace::MakeCurrent(int device) {
  CUcontext context = nullptr;
  if (!devices_.HasContext(device) || devices_.Context(device, &context) != CUDA_SUCCESS) return false;
  if (driver_.cuCtxSetCurrent(context) != CUDA_SUCCESS) return false;
  // Programs may be capturing: what is done here has nothing to do with it.
  auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (driver_.cuThreadExchangeStreamCaptureMode != nullptr) driver_.cuThreadExchangeStreamCaptureMode(&mode);
  return true;
}

void Trace::Prepare(TraceSwitch& session) {
  const int count = std::min(devices_.count(), static_cast<int>(shm::kActivityDevices));
  for (int device = 0; device < count; ++device) {
    auto& ring = session.rings_[static_cast<size_t>(device)];
    if (ring.load(std::memory_order_relaxed) != nullptr || !MakeCurrent(device)) continue;
    ring.store(new TraceRing(devices_.completions(device), session.session_id_, static_cast<uint16_t>(device)),
               std::memory_order_release);
  }
}

void Trace::PrepareAll() {
  const int count = std::min(devices_.count(), static_cast<int>(shm::kActivityDevices));
  for (int device = 0; device < count; ++device) {
    if (!clocks_[static_cast<size_t>(device)].anchor.exists() && MakeCurrent(device)) MatchClock(device);
  }
  for (TraceSwitch* session : sessions_) {
    if (IsWanted(*session)) Prepare(*session);
  }
}

void Trace::MatchClock(int device) {
  DeviceClock& clock = clocks_[static_cast<size_t>(device)];
  if (clock.stream == nullptr &&
      driver_.cuStreamCreateWithPriority(&clock.stream, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS) {
    clock.stream = nullptr;
    return;
  }
  CompletionSource& completions = devices_.completions(device);
  auto best = std::chrono::nanoseconds::max();
  for (int i = 0; i < kAnchorTries; ++i) {
    Mark mark;
    const TimePoint before = clock_.Now();
    if (completions.Put(clock.stream, &mark, MarkKind::kTimed) != CUDA_SUCCESS) return;
    // On a GPU that is somebody else's at the moment: the next round tries again. Nobody is to wait for that.
    while (!mark.HasEnded() && clock_.Now() - before < kAnchorWait) {
    }
    if (!mark.HasEnded()) break;
    const std::chrono::nanoseconds took = clock_.Now() - before;
    if (took >= best) continue;
    best = took;
    clock.anchor = std::move(mark);
    clock.anchor_ns = Ns(before + took / 2);
  }
  if (clock.anchor.exists()) clock_error_ns_ = std::max(clock_error_ns_, static_cast<uint64_t>(best.count() / 2));
}

void Trace::MoveAnchor(DeviceClock& clock, CompletionSource& completions) {
  if (!clock.anchor.exists()) return;
  if (!clock.next.exists()) {
    (void)completions.Put(clock.stream, &clock.next, MarkKind::kTimed);
  } else if (clock.next.HasEnded()) {
    if (const auto later = completions.Between(clock.anchor, clock.next)) {
      clock.anchor_ns += later->count();
      clock.anchor = std::move(clock.next);
    }
    clock.next.Clear();
    anchored_at_ = clock_.Now();
  }
}

uint64_t Trace::TimeOf(const Mark& mark, int device) {
  const DeviceClock& clock = clocks_[static_cast<size_t>(device)];
  if (!mark.exists() || !clock.anchor.exists() || !mark.HasEnded()) return 0;
  const auto since = devices_.completions(device).Between(clock.anchor, mark);
  return since ? static_cast<uint64_t>(clock.anchor_ns + since->count()) : 0;
}

uint32_t Trace::NumberOf(const TraceName& name) {
  const std::string_view text(name.data(), ::strnlen(name.data(), name.size()));
  if (const auto known = names_.find(text); known != names_.end()) return known->second;
  if (names_.size() >= control::kMostTraceNames) return 0;  // the name of all for which there is no room
  const auto number = static_cast<uint32_t>(names_.size());
  return names_.emplace(text, number).first->second;
}

void Trace::AddEvent(const TraceEvent& event) {
  const std::lock_guard lock(events_mutex_);
  if (events_.size() >= control::kMostTraceEvents) {
    num_events_dropped_ += std::max<uint32_t>(event.num_launches, 1);
    return;
  }
  events_.push_back(event);
}

void Trace::Add(TraceKind kind, int device, TimePoint begin, TimePoint end) {
  if (!is_on_.load(std::memory_order_relaxed)) return;
  TraceEvent event{};
  event.kind = static_cast<uint16_t>(kind);
  event.device = static_cast<uint16_t>(device);
  event.begin_ns = static_cast<uint64_t>(Ns(begin));
  event.end_ns = static_cast<uint64_t>(Ns(end));
  AddEvent(event);
}

void Trace::Finish(TraceRecord& record) {
  TraceEvent& event = record.event;
  event.name = NumberOf(record.name);
  if (event.kind == static_cast<uint16_t>(TraceKind::kRun) && MakeCurrent(event.device)) {
    event.begin_ns = TimeOf(record.begin, event.device);
    event.end_ns = event.begin_ns != 0 ? TimeOf(record.end, event.device) : 0;
  }
  AddEvent(event);
}

void Trace::TakeFrom(TraceSwitch& session) {
  for (size_t device = 0; device < session.rings_.size(); ++device) {
    TraceRing* const ring = session.rings_[device].load(std::memory_order_relaxed);
    if (ring == nullptr || !MakeCurrent(static_cast<int>(device))) continue;
    num_dropped_ += ring->TakeNumDropped();
    for (TraceRecord record; ring->Take(&record); record = {}) {
      if (record.event.kind != static_cast<uint16_t>(TraceKind::kRun)) {
        Finish(record);
      } else if (pending_.size() < kMostPending) {
        pending_.push_back(std::move(record));
      } else {
        num_dropped_ += record.event.num_launches;
      }
    }
  }
}

void Trace::Collect() {
  for (TraceSwitch* session : sessions_) {
    if (session->is_on_.load(std::memory_order_relaxed)) TakeFrom(*session);
  }
  Look look;
  std::erase_if(pending_, [&](TraceRecord& record) {
    if (record.end.exists() && !look.HasEnded(record.end)) return false;
    Finish(record);
    return true;
  });
}

void Trace::Run() {
  while (is_on_.load()) {
    {
      const std::lock_guard lock(mutex_);
      PrepareAll();
      Collect();
      if (clock_.Now() - anchored_at_ > kAnchorFor) {
        for (int device = 0; device < devices_.count() && device < static_cast<int>(clocks_.size()); ++device) {
          if (MakeCurrent(device)) MoveAnchor(clocks_[static_cast<size_t>(device)], devices_.completions(device));
        }
      }
    }
    std::this_thread::sleep_for(kRound);
  }
}

Status Trace::Start(std::optional<uint32_t> uid) {
  const std::lock_guard lock(mutex_);
  if (is_on_.load()) return Status(StatusCode::kAlreadyExists, "somebody records a trace already");
  only_uid_ = uid;
  for (TraceSwitch* session : sessions_) TakeFrom(*session);  // what came too late for an earlier recording
  pending_.clear();
  names_.clear();
  names_.emplace("", 0);
  num_dropped_ = clock_error_ns_ = 0;
  {
    const std::lock_guard events_lock(events_mutex_);
    events_.clear();
    num_events_dropped_ = 0;
  }
  PrepareAll();
  began_ = anchored_at_ = clock_.Now();
  is_on_.store(true);
  auto collector = StartThread("trace", [this] { Run(); });
  if (!collector) {
    is_on_.store(false);
    return collector.error();
  }
  collector_ = std::move(*collector);
  for (TraceSwitch* session : sessions_) session->is_on_.store(IsWanted(*session), std::memory_order_relaxed);
  return OkStatus();
}

TraceResult Trace::Stop() {
  TraceResult result;
  if (!is_on_.exchange(false)) return result;
  collector_.join();
  const std::lock_guard lock(mutex_);
  const TimePoint ended = clock_.Now();
  for (TraceSwitch* session : sessions_) session->is_on_.store(false, std::memory_order_relaxed);
  for (TraceSwitch* session : sessions_) TakeFrom(*session);
  for (Collect(); !pending_.empty() && clock_.Now() - ended < kLastWait; Collect()) {
    std::this_thread::sleep_for(kRound);
  }
  for (TraceRecord& record : pending_) Finish(record);
  pending_.clear();
  for (size_t device = 0; device < clocks_.size(); ++device) {
    DeviceClock& clock = clocks_[device];
    if (clock.stream != nullptr && MakeCurrent(static_cast<int>(device))) driver_.cuStreamDestroy_v2(clock.stream);
    clock = {};
  }
  {
    const std::lock_guard events_lock(events_mutex_);
    result.events = std::move(events_);
    events_ = {};
    num_dropped_ += num_events_dropped_;
  }
  result.names.resize(names_.size());
  for (const auto& [name, number] : names_) result.names[number] = name;
  result.header.magic = control::kTraceMagic;
  result.header.began_ns = static_cast<uint64_t>(Ns(began_));
  result.header.ended_ns = static_cast<uint64_t>(Ns(ended));
  result.header.num_dropped = num_dropped_;
  result.header.clock_error_ns = clock_error_ns_;
  result.header.num_events = static_cast<uint32_t>(result.events.size());
  result.header.num_names = static_cast<uint32_t>(result.names.size());
  return result;
}

Status WriteTrace(const TraceResult& result, int fd) {
  std::vector<char> names(result.names.size() * control::kTraceNameBytes);
  for (size_t i = 0; i < result.names.size(); ++i) {
    result.names[i].copy(names.data() + i * control::kTraceNameBytes, control::kTraceNameBytes - 1);
  }
  off_t at = 0;
  const auto write = [&](const void* bytes, size_t size) {
    const char* from = static_cast<const char*>(bytes);
    while (size > 0) {
      const ssize_t written = ::pwrite(fd, from, size, at);
      if (written <= 0) return false;
      from += written;
      at += written;
      size -= static_cast<size_t>(written);
    }
    return true;
  };
  if (write(&result.header, sizeof(result.header)) &&
      write(result.events.data(), result.events.size() * sizeof(TraceEvent)) && write(names.data(), names.size())) {
    return OkStatus();
  }
  return StatusFromErrno(errno, "write a trace");
}

}  // namespace tally::server
