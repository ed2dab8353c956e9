#include "server/executor/session/stream_waits.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "server/executor/dispatch/standstill.h"

namespace tally::server {
namespace {

// A nap is some 60 us longer than asked for: nothing beside a wait that has lasted for so long.
constexpr auto kLookBeforeSleep = std::chrono::milliseconds(1);
constexpr auto kShortestNap = std::chrono::microseconds(50);
constexpr auto kLongestNap = std::chrono::milliseconds(1);
constexpr auto kLongestSleep = std::chrono::seconds(10);

}  // namespace

void StreamWaits::EndTracedRun(const Stream& stream) {
  const int device = stream.context->device();
  TraceRing* const ring = session_.trace.RingOf(device);
  if (ring == nullptr) [[likely]]
    return;
  if (!stream.context->IsCapturing(stream) && EnterDevice(device) == CUDA_SUCCESS) ring->CloseRun(stream.real);
}

void StreamWaits::MarkStream(Stream& stream, std::vector<WaitPoint>* points) {
  if (stream.gated != nullptr && EnterDevice(stream.context->device()) == CUDA_SUCCESS) stream.Seal();
  EndTracedRun(stream);
  session_.awaited.Begin(stream.real);
  points->push_back({stream.real, Mark(), stream.num_waited, stream.num_issued, stream.requests, stream.work,
                     stream.work->num_put()});
}

CUresult StreamWaits::RecordPoint(Stream& stream, std::vector<WaitPoint>* points) {
  const int device = stream.context->device();
  if (const CUresult r = EnterDevice(device); r != CUDA_SUCCESS) return r;
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  EndTracedRun(stream);
  Mark mark;
  if (const CUresult r = session_.core.devices->completions(device).Put(stream.real, &mark); r != CUDA_SUCCESS)
    return r;
  points->push_back({nullptr, std::move(mark), stream.num_waited, stream.num_issued, stream.requests, stream.work,
                     stream.work->num_put()});
  return CUDA_SUCCESS;
}

CUresult StreamWaits::MarkBusy(const std::vector<ClientContext*>& contexts, std::vector<WaitPoint>* points) {
  std::vector<Stream*> busy;
  for (ClientContext* context : contexts) {
    for (const auto& stream : context->streams()) {
      if (stream->HasUnfinishedWork() && !context->IsCapturing(*stream)) busy.push_back(stream.get());
    }
  }
  if (busy.size() == 1) {
    MarkStream(*busy.front(), points);
    return CUDA_SUCCESS;
  }
  for (Stream* stream : busy) {
    if (const CUresult r = RecordPoint(*stream, points); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult StreamWaits::MarkContext(uint32_t context_index, std::vector<WaitPoint>* points) {
  if (context_index == shm::kNoContext) {
    return MarkDevice(served_.context() != nullptr ? served_.context()->device() : served_.current_device(), points);
  }
  const auto found = session_.contexts.find(context_index);
  return found != session_.contexts.end() ? MarkBusy({found->second.get()}, points) : CUDA_SUCCESS;
}

// As natively, what another device does is not waited for, not even if it may use this one's memory: its kernels may be
// waiting for what this thread does next.
CUresult StreamWaits::MarkDevice(int device, std::vector<WaitPoint>* points) {
  std::vector<ClientContext*> contexts;
  for (const auto& [index, context] : session_.contexts) {
    if (context->device() == device) contexts.push_back(context.get());
  }
  return MarkBusy(contexts, points);
}

// What other threads of the program add meanwhile counts, as if it had come before; but not for ever.
template <typename Query>
void StreamWaits::SleepUntilReady(const Query& query) const {
  if (session_.is_high_priority.load(std::memory_order_relaxed)) return;
  const Clock& clock = session_.clock;
  const TimePoint since = clock.Now();
  // The thread's own device: without the sequencer, the client context may be gone.
  const int device = served_.current_device();
  Standstill standstill(device >= 0 ? session_.core.admission->watch() : nullptr, device, since);
  while (query() == CUDA_ERROR_NOT_READY) {
    const TimePoint now = clock.Now();
    standstill.OnWaiting(now);
    const std::chrono::nanoseconds waited = now - since;
    if (waited > kLongestSleep) return;
    if (waited < kLookBeforeSleep) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(waited / 16, kShortestNap, kLongestNap));
    }
  }
}

CUresult StreamWaits::AwaitEvent(CUevent event) const {
  SleepUntilReady([&] { return StateOfEvent(driver(), event); });
  return driver().cuEventSynchronize(event);
}

CUresult StreamWaits::AwaitMark(const Mark& mark) const {
  SleepUntilReady([&] { return mark.State(); });
  return mark.Await();
}

CUresult StreamWaits::AwaitStream(CUstream stream) const {
  SleepUntilReady([&] { return driver().cuStreamQuery(stream); });
  return driver().cuStreamSynchronize(stream);
}

CUresult StreamWaits::Await(const WaitPoint& point) {
  if (point.stream == nullptr) return AwaitMark(point.mark);
  const CUresult result = AwaitStream(point.stream);
  if (session_.awaited.End(point.stream)) driver().cuStreamDestroy_v2(point.stream);
  return result;
}

CUresult StreamWaits::AwaitPoints(std::vector<WaitPoint>* points) {
  served_.ReleaseSequencer();
  const bool is_context_call = served_.is_context_call();
  served_.EndContextCall();
  CUresult result = CUDA_SUCCESS;
  for (const WaitPoint& point : *points) {
    const CUresult waited = Await(point);
    if (result == CUDA_SUCCESS) result = waited;
    if (waited == CUDA_SUCCESS) {
      point.work->OnSeen(point.num_put, session_.clock.Now());
      session_.NoteWaited(*point.requests);
    }
    uint64_t before = point.num_waited->load(std::memory_order_relaxed);
    while (waited == CUDA_SUCCESS && before < point.num_issued &&
           !point.num_waited->compare_exchange_weak(before, point.num_issued, std::memory_order_release)) {
    }
  }
  points->clear();
  if (is_context_call) served_.BeginContextCall();
  CollectOutput();
  return result;
}

void StreamWaits::MarkRequests(std::vector<WaitPoint>* points) {
  if (!session_.times_requests) return;
  for (const auto& [index, context] : session_.contexts) {
    for (const auto& stream : context->streams()) {
      if (stream->requests->has_begun() && !context->IsCapturing(*stream)) MarkStream(*stream, points);
    }
  }
}

void StreamWaits::EndRequests(const std::vector<WaitPoint>& points) {
  for (const WaitPoint& point : points) {
    if (driver().cuStreamQuery(point.stream) == CUDA_SUCCESS) session_.NoteWaited(*point.requests);
    if (session_.awaited.End(point.stream)) driver().cuStreamDestroy_v2(point.stream);
  }
}

void StreamWaits::LookAtStreams() {
  if (session_.core.fault() != CUDA_SUCCESS) return;
  const TimePoint done_at = session_.busy.WhenDone(session_.clock.Now());
  for (const auto& [index, context] : session_.contexts) {
    for (const auto& stream : context->streams()) {
      // Of launches with gates the driver does not know which have to be made again. Asking a stream that is being
      // captured would spoil the capture.
      if (stream->work->is_done() || stream->gated != nullptr || context->IsCapturing(*stream)) continue;
      if (EnterDevice(context->device()) != CUDA_SUCCESS) continue;
      if (driver().cuStreamQuery(stream->real) == CUDA_SUCCESS) stream->work->OnSeen(stream->work->num_put(), done_at);
    }
  }
}

void StreamWaits::CollectOutput() {
  if (session_.may_print) session_.core.device_output->Collect();
}

}  // namespace tally::server
