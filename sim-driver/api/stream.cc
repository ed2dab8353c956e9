#include "sim-driver/api/stream.h"

#include "sim-driver/api/capture.h"
#include "sim-driver/api/context.h"
#include "sim-driver/api/device.h"
#include "sim-driver/api/error.h"

namespace tally::sim_driver {

HandleTable<CUstream, Stream>& Streams() {
  static auto& table = *new HandleTable<CUstream, Stream>("streams");
  return table;
}

HandleTable<CUevent, Event>& Events() {
  static auto& table = *new HandleTable<CUevent, Event>("events");
  return table;
}

StreamUse UseStream(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    ContextPtr context = EnterContext();
    StreamPtr stream = handle == CU_STREAM_PER_THREAD ? context->ThreadStream() : context->legacy_stream();
    return {std::move(stream), std::move(context)};
  }
  RequireInitialized();
  StreamPtr stream = Streams().Find(handle);
  Require(stream != nullptr, CUDA_ERROR_INVALID_HANDLE);
  ContextPtr context = stream->context.lock();
  Require(context != nullptr && !context->is_destroyed(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  RequireSuccess(context->error());
  return {std::move(stream), std::move(context)};
}

EventPtr FindEvent(CUevent handle) {
  RequireInitialized();
  EventPtr event = Events().Find(handle);
  Require(event != nullptr, CUDA_ERROR_INVALID_HANDLE);
  return event;
}

std::vector<TaskPtr> PredecessorsLocked(const Stream& stream, Context& context) {
  std::vector<TaskPtr> before;
  if (stream.tail) before.push_back(stream.tail);
  if (stream.kind == Stream::Kind::kLegacy) {
    context.AppendTailsLocked(before, /*blocking_only=*/true);
  } else if (stream.IsBlocking()) {
    before.push_back(context.legacy_stream_locked()->tail);
  }
  return before;
}

void AppendLocked(const StreamPtr& stream, Context& context, const TaskPtr& task, std::span<const TaskPtr> after) {
  std::vector<TaskPtr> before = PredecessorsLocked(*stream, context);
  before.insert(before.end(), after.begin(), after.end());
  task->fault = context.fault();
  stream->tail = task;
  Timeline::Get().SubmitLocked(task, before);
}

void Append(const StreamPtr& stream, Context& context, const TaskPtr& task, std::span<const TaskPtr> after) {
  const auto lock = Timeline::Get().Lock();
  AppendLocked(stream, context, task, after);
}

StreamPtr CreateStream(const ContextPtr& context, unsigned flags, int priority) {
  static std::atomic<uint64_t> next_id{1 << 20};
  auto stream = std::make_shared<Stream>();
  stream->id = next_id.fetch_add(1);
  stream->flags = flags;
  stream->priority = priority;
  stream->context = context;
  const uint64_t value = NextHandleValue();
  stream->handle = reinterpret_cast<CUstream>(value);
  context->AddStream(stream);
  Streams().InsertAt(value, stream);
  return stream;
}

void DestroyStream(CUstream handle) {
  const StreamPtr stream = Streams().Remove(handle);
  Require(stream != nullptr, CUDA_ERROR_INVALID_HANDLE);
  AbandonCapture(stream);
  const ContextPtr context = stream->context.lock();
  if (context) context->RemoveStream(stream);
}

void SynchronizeStream(const StreamUse& use) {
  RefuseWhileCapturing(use.stream);
  std::vector<TaskPtr> before;
  {
    const auto lock = Timeline::Get().Lock();
    if (use.stream->kind == Stream::Kind::kLegacy) {
      before = PredecessorsLocked(*use.stream, *use.context);
    } else {
      before.push_back(use.stream->tail);
    }
  }
  Timeline::Get().WaitAll(before);
  use.context->printf_buffer().Flush();
  RequireSuccess(use.context->error());
}

CUresult QueryStream(const StreamUse& use) {
  RefuseWhileCapturing(use.stream);
  const auto lock = Timeline::Get().Lock();
  const std::vector<TaskPtr> before = use.stream->kind == Stream::Kind::kLegacy
                                          ? PredecessorsLocked(*use.stream, *use.context)
                                          : std::vector<TaskPtr>{use.stream->tail};
  for (const TaskPtr& task : before) {
    if (task && !task->is_done.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_READY;
  }
  return use.context->error();
}

EventPtr CreateEvent(const ContextPtr& context, unsigned flags) {
  auto event = std::make_shared<Event>();
  event->flags = flags;
  event->context = context;
  const uint64_t value = NextHandleValue();
  event->handle = reinterpret_cast<CUevent>(value);
  Events().InsertAt(value, event);
  return event;
}

void RecordEvent(const EventPtr& event, const StreamUse& use) {
  auto marker = std::make_shared<Task>();
  const auto lock = Timeline::Get().Lock();
  AppendLocked(use.stream, *use.context, marker);
  event->recorded = std::move(marker);
}

void WaitForEvent(const StreamUse& use, const EventPtr& event) {
  const auto lock = Timeline::Get().Lock();
  if (!event->recorded || event->recorded->is_done.load()) return;
  AppendLocked(use.stream, *use.context, std::make_shared<Task>(), std::span(&event->recorded, 1));
}

namespace {

TaskPtr RecordedMarker(const EventPtr& event) {
  Require(!event->is_captured.load(), CUDA_ERROR_CAPTURED_EVENT);
  const auto lock = Timeline::Get().Lock();
  return event->recorded;
}

}  // namespace

void SynchronizeEvent(const EventPtr& event) {
  const TaskPtr marker = RecordedMarker(event);
  if (marker) Timeline::Get().Wait(marker);
  if (const ContextPtr context = event->context.lock()) {
    context->printf_buffer().Flush();
    RequireSuccess(context->error());
  }
}

CUresult QueryEvent(const EventPtr& event) {
  const TaskPtr marker = RecordedMarker(event);
  if (const ContextPtr context = event->context.lock()) RequireSuccess(context->error());
  return !marker || marker->is_done.load(std::memory_order_acquire) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

float ElapsedMilliseconds(const EventPtr& start, const EventPtr& end) {
  Require(((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) == 0, CUDA_ERROR_INVALID_HANDLE);
  const TaskPtr first = RecordedMarker(start);
  const TaskPtr last = RecordedMarker(end);
  Require(first && last, CUDA_ERROR_INVALID_HANDLE);
  Require(first->is_done.load(std::memory_order_acquire) && last->is_done.load(std::memory_order_acquire),
          CUDA_ERROR_NOT_READY);
  const auto difference = static_cast<int64_t>(last->finished_ns.load() - first->finished_ns.load());
  return static_cast<float>(static_cast<double>(difference) * 1e-6);
}

}  // namespace tally::sim_driver
