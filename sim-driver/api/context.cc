#include "sim-driver/api/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "sim-driver/api/array.h"
#include "sim-driver/api/device.h"
#include "sim-driver/api/error.h"
#include "sim-driver/api/ipc_memory.h"
#include "sim-driver/api/memory.h"
#include "sim-driver/api/module.h"
#include "sim-driver/api/texture_object.h"
#include "sim-driver/api/timeline.h"

namespace tally::sim_driver {
namespace {

std::vector<ContextPtr>& ThreadStack() {
  thread_local std::vector<ContextPtr> stack;
  return stack;
}

uint64_t NextContextId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

StreamPtr NewStream(const ContextPtr& context, Stream::Kind kind) {
  static std::atomic<uint64_t> next_id{1};
  auto stream = std::make_shared<Stream>();
  stream->kind = kind;
  stream->id = next_id.fetch_add(1);
  stream->context = context;
  return stream;
}

}  // namespace

HandleTable<CUcontext, Context>& Contexts() {
  static auto& table = *new HandleTable<CUcontext, Context>("contexts");
  return table;
}

Context::Context(Device& device, unsigned context_flags, bool is_primary, unsigned api_version)
    : flags(context_flags),
      device_(device),
      id_(NextContextId()),
      is_primary_(is_primary),
      api_version_(api_version),
      memory_(std::make_shared<ContextMemory>(device.ordinal())),
      printf_buffer_(std::make_shared<PrintfBuffer>()) {
  SetLimit(CU_LIMIT_STACK_SIZE, 1024);
  SetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20);
  SetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20);
  SetLimit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2);
  SetLimit(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048);
  SetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 128);
}

ContextPtr Context::Create(Device& device, unsigned flags, bool is_primary, unsigned api_version) {
  if (!Timeline::Get().Open(ShuffleSeed()) || device.OpenMachine().code() == StatusCode::kResourceExhausted) {
    Fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  ContextPtr context(new Context(device, flags, is_primary, api_version));
  context->legacy_ = NewStream(context, Stream::Kind::kLegacy);
  const uint64_t value = NextHandleValue();
  context->handle_ = reinterpret_cast<CUcontext>(value);
  Contexts().InsertAt(value, context);
  return context;
}

void Context::Destroy() {
  if (is_destroyed_.exchange(true)) return;
  Contexts().Remove(handle_);
  Synchronize();
  {
    const auto lock = Timeline::Get().Lock();
    for (const StreamPtr& stream : streams_) Streams().Remove(stream->handle);
    streams_.clear();
    thread_streams_.clear();
    detached_.clear();
  }
  Events().RemoveIf([this](const Event& event) { return event.context.lock().get() == this; });
  UnloadModulesOf(*this);
  ForgetImagesOf(*this);
  ForgetArraysOf(*this);
  CloseMemoryOf(*this);
  FreeMemoryOf(*this);
}

void Context::NoteFault(int error, const std::string& message) {
  int well = 0;
  if (!fault_->error.compare_exchange_strong(well, error)) return;
  fmt::print(stderr, "tally sim: {}\n", message);
}

void Context::Synchronize() {
  std::vector<TaskPtr> tails;
  {
    const auto lock = Timeline::Get().Lock();
    AppendTailsLocked(tails, /*blocking_only=*/false);
  }
  Timeline::Get().WaitAll(tails);
  printf_buffer_->Flush();
}

bool Context::IsIdle() {
  std::vector<TaskPtr> tails;
  const auto lock = Timeline::Get().Lock();
  AppendTailsLocked(tails, /*blocking_only=*/false);
  return tails.empty();
}

void Context::AppendTailsLocked(std::vector<TaskPtr>& tails, bool blocking_only) {
  const auto add = [&tails](const TaskPtr& tail) {
    if (tail && !tail->is_done.load(std::memory_order_acquire)) tails.push_back(tail);
  };
  std::erase_if(detached_, [](const Detached& detached) { return detached.tail->is_done.load(); });
  for (const Detached& detached : detached_) {
    if (detached.is_blocking || !blocking_only) add(detached.tail);
  }
  for (const auto& [thread, stream] : thread_streams_) add(stream->tail);
  for (const StreamPtr& stream : streams_) {
    if (stream->IsBlocking() || !blocking_only) add(stream->tail);
  }
  if (!blocking_only) add(legacy_->tail);
}

StreamPtr Context::legacy_stream() { return legacy_; }

StreamPtr Context::ThreadStream() {
  const auto lock = Timeline::Get().Lock();
  StreamPtr& stream = thread_streams_[std::this_thread::get_id()];
  if (!stream) stream = NewStream(shared_from_this(), Stream::Kind::kPerThread);
  return stream;
}

void Context::AddStream(const StreamPtr& stream) {
  const auto lock = Timeline::Get().Lock();
  streams_.push_back(stream);
}

void Context::RemoveStream(const StreamPtr& stream) {
  const auto lock = Timeline::Get().Lock();
  std::erase(streams_, stream);
  if (stream->tail && !stream->tail->is_done.load()) detached_.push_back({stream->tail, stream->IsBlocking()});
}

ContextPtr FindContext(CUcontext handle) {
  ContextPtr context = Contexts().Find(handle);
  Require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  return context;
}

ContextPtr FindContextById(uint64_t id) {
  return Contexts().FindIf([id](const Context& context) { return context.id() == id; });
}

std::vector<ContextPtr> AllContexts() {
  std::vector<ContextPtr> contexts;
  Contexts().FindIf([&contexts](const Context& context) {
    contexts.push_back(const_cast<Context&>(context).shared_from_this());
    return false;
  });
  return contexts;
}

ContextPtr CurrentContextOrNull() {
  const auto& stack = ThreadStack();
  return stack.empty() ? nullptr : stack.back();
}

void SetCurrentContext(ContextPtr context) {
  auto& stack = ThreadStack();
  if (!context) {
    if (!stack.empty()) stack.pop_back();
  } else if (stack.empty()) {
    stack.push_back(std::move(context));
  } else {
    stack.back() = std::move(context);
  }
}

void PushContext(ContextPtr context) { ThreadStack().push_back(std::move(context)); }

ContextPtr PopContext() {
  auto& stack = ThreadStack();
  if (stack.empty()) return nullptr;
  ContextPtr top = std::move(stack.back());
  stack.pop_back();
  return top;
}

ContextPtr EnterContext() {
  RequireInitialized();
  const auto& stack = ThreadStack();
  Require(!stack.empty() && stack.back(), CUDA_ERROR_INVALID_CONTEXT);
  const ContextPtr& context = stack.back();
  Require(!context->is_destroyed(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  RequireSuccess(context->error());
  return context;
}

}  // namespace tally::sim_driver
