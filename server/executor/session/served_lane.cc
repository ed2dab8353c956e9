#include "server/executor/session/served_lane.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "server/executor/dispatch/standstill.h"
#include "server/executor/session/wire_codec.h"

namespace tally::server {
namespace {

// A nap is some 60 us longer than asked for: nothing beside a wait that has lasted for so long.
constexpr auto kLookBeforeSleep = std::chrono::milliseconds(1);
constexpr auto kShortestNap = std::chrono::microseconds(50);
constexpr auto kLongestNap = std::chrono::milliseconds(1);
constexpr auto kLongestSleep = std::chrono::seconds(10);

}  // namespace

CUdevice WireReader::TakeDevice(ServedLane& lane) {
  const uint64_t ordinal = TakeWord();
  const Devices& devices = *lane.session().core.devices;
  if (ordinal >= static_cast<uint64_t>(devices.count())) {
    Fail();
    return 0;
  }
  return devices.device(static_cast<int>(ordinal));
}

void WireWriter::PutHandleOf(ServedLane& lane, shm::HandleKind kind, void* value) {
  PutWord(value != nullptr ? lane.NameOf(kind, value) : 0);
}

ServedLane::ServedLane(SessionState& session, TurnOrder& turns, uint32_t lane_index, const LaneRegion& region)
    : session_(session), turns_(turns), lane_index_(lane_index), region_(region) {}

ServedLane::~ServedLane() {
  // On another thread than the lane's own, which has no context current; what follows needs one.
  CUcontext context = nullptr;
  if (arena_device_ != kNoDevice && session_.core.devices->Context(arena_device_, &context) == CUDA_SUCCESS) {
    driver().cuCtxSetCurrent(context);
  }
  if (arena_device_ != kNoDevice) driver().cuMemHostUnregister(region_.arena());
}

void ServedLane::HoldTurn(uint64_t ticket, bool wants_reply) {
  ticket_ = ticket;
  has_turn_ = true;
  wants_reply_ = wants_reply;
}

CUresult ServedLane::EnterContext(uint32_t context_index) {
  context_index_ = context_index;
  context_ = nullptr;
  if (context_index == shm::kNoContext) {
    if (current_device_ != kNoDevice) driver().cuCtxSetCurrent(nullptr);
    current_device_ = kNoDevice;
    return CUDA_SUCCESS;
  }
  context_ = session_.FindContext(context_index);
  if (context_ == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return EnterDevice(context_->device());
}

CUresult ServedLane::EnterDevice(int device) {
  if (device == current_device_) return CUDA_SUCCESS;
  CUcontext real = nullptr;
  if (const CUresult r = session_.core.devices->Context(device, &real); r != CUDA_SUCCESS) return r;
  if (const CUresult r = driver().cuCtxSetCurrent(real); r != CUDA_SUCCESS) return r;
  if (current_device_ < 0 && driver().cuThreadExchangeStreamCaptureMode != nullptr) {
    // The client checks what its thread may do while it captures; here nothing is forbidden.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver().cuThreadExchangeStreamCaptureMode(&mode);
  }
  current_device_ = device;
  return CUDA_SUCCESS;
}

CUresult ServedLane::EnablePeer(int from, int to) {
  const int before = current_device_;
  const CUresult result = session_.core.peers.Enable(from, to);
  ForgetCurrentDevice();
  if (before >= 0) EnterDevice(before);
  return result;
}

CUresult ServedLane::Find(shm::HandleKind, uint64_t handle, CUfunction* out) {
  const bool is_kernel = shm::HandleKindOf(handle) == shm::HandleKind::kKernel;
  auto* kernel = static_cast<Kernel*>(
      session_.handles(is_kernel ? shm::HandleKind::kKernel : shm::HandleKind::kFunction).Find(handle));
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (kernel->function != nullptr) {
    *out = kernel->function;
    return CUDA_SUCCESS;
  }
  if (kernel->function_of_kernel == nullptr) {
    // Same real context for every client context of a device; with several devices each has its own function.
    CUfunction function = nullptr;
    if (const CUresult r = driver().cuKernelGetFunction(&function, kernel->kernel); r != CUDA_SUCCESS) return r;
    if (session_.core.devices->count() > 1) {
      *out = function;
      return CUDA_SUCCESS;
    }
    kernel->function_of_kernel = function;
  }
  *out = kernel->function_of_kernel;
  return CUDA_SUCCESS;
}

CUresult ServedLane::Find(shm::HandleKind, uint64_t handle, CUkernel* out) {
  auto* kernel = static_cast<Kernel*>(session_.handles(shm::HandleKind::kKernel).Find(handle));
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = kernel->kernel;
  return CUDA_SUCCESS;
}

CUresult ServedLane::Find(shm::HandleKind, uint64_t handle, CUmodule* out) {
  auto* image = static_cast<LoadedImage*>(session_.handles(shm::HandleKind::kModule).Find(handle));
  if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = image->module;
  return CUDA_SUCCESS;
}

CUresult ServedLane::Find(shm::HandleKind, uint64_t handle, CUlibrary* out) {
  auto* image = static_cast<LoadedImage*>(session_.handles(shm::HandleKind::kLibrary).Find(handle));
  if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = image->library;
  return CUDA_SUCCESS;
}

uint64_t ServedLane::NameOf(shm::HandleKind kind, void* value) {
  const uint64_t handle = session_.handles(kind).Add(value, context_index_);
  if (handle == 0) Malformed("more handles of one kind than a session may have");
  return handle;
}

CUresult ServedLane::FindStream(uint64_t handle, Stream** out) {
  if (handle > shm::kPerThreadStream) {
    if (const CUresult r = Find(shm::HandleKind::kStream, handle, out); r != CUDA_SUCCESS) return r;
    // The program may name a stream of one device while another is current.
    return EnterDevice((*out)->context->device());
  }
  if (context_ == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const bool is_per_thread = handle == shm::kPerThreadStream;
  std::optional<VariantRegistry::ContextCall> making;
  if (!(is_per_thread ? context_->HasPerThread(lane_index_) : context_->HasLegacy())) {
    making.emplace(session_.core.variants.get(), session_.is_high_priority.load(std::memory_order_relaxed));
  }
  return is_per_thread ? context_->PerThread(lane_index_, out) : context_->Legacy(out);
}

CUresult ServedLane::ResolveStream(uint64_t handle, StreamUse use, Stream** out) {
  if (const CUresult r = FindStream(handle, out); r != CUDA_SUCCESS) return r;
  if (use == StreamUse::kNamed) return CUDA_SUCCESS;
  if (const CUresult r = (*out)->context->Order(**out); r != CUDA_SUCCESS || use == StreamUse::kLaunch) return r;
  return (*out)->Seal();
}

CUresult ServedLane::ResolveStream(uint64_t handle, StreamUse use, CUstream* out) {
  Stream* stream = nullptr;
  const CUresult result = ResolveStream(handle, use, &stream);
  if (result == CUDA_SUCCESS) *out = stream->real;
  return result;
}

CUresult ServedLane::Malformed(const char* reason) {
  if (malformed_reason_ == nullptr) malformed_reason_ = reason;
  return CUDA_ERROR_INVALID_VALUE;
}

void ServedLane::BeginContextCall() {
  if (waiting_) return;
  context_call_.emplace(session_.core.variants.get(), session_.is_high_priority.load(std::memory_order_relaxed));
  waiting_.emplace(session_.core.context_calls, &session_);
}

void ServedLane::GiveUpTurn() {
  if (!has_turn_) return;
  has_turn_ = false;
  turns_.Pass(ticket_);
}

void ServedLane::MarkStream(Stream& stream, std::vector<WaitPoint>* points) {
  if (stream.gated != nullptr && EnterDevice(stream.context->device()) == CUDA_SUCCESS) stream.Seal();
  session_.awaited.Begin(stream.real);
  points->push_back({stream.real, Mark(), stream.num_waited, stream.num_issued, stream.requests});
}

CUresult ServedLane::RecordPoint(Stream& stream, std::vector<WaitPoint>* points) {
  const int device = stream.context->device();
  if (const CUresult r = EnterDevice(device); r != CUDA_SUCCESS) return r;
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  Mark mark;
  if (const CUresult r = session_.core.devices->completions(device).Put(stream.real, &mark); r != CUDA_SUCCESS)
    return r;
  points->push_back({nullptr, std::move(mark), stream.num_waited, stream.num_issued, stream.requests});
  return CUDA_SUCCESS;
}

CUresult ServedLane::MarkBusy(const std::vector<ClientContext*>& contexts, std::vector<WaitPoint>* points) {
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

CUresult ServedLane::MarkContext(uint32_t context_index, std::vector<WaitPoint>* points) {
  if (context_index == shm::kNoContext) {
    return MarkDevice(context_ != nullptr ? context_->device() : current_device_, points);
  }
  const auto found = session_.contexts.find(context_index);
  return found != session_.contexts.end() ? MarkBusy({found->second.get()}, points) : CUDA_SUCCESS;
}

// As natively, what another device does is not waited for, not even if it may use this one's memory: its kernels may be
// waiting for what this thread does next.
CUresult ServedLane::MarkDevice(int device, std::vector<WaitPoint>* points) {
  std::vector<ClientContext*> contexts;
  for (const auto& [index, context] : session_.contexts) {
    if (context->device() == device) contexts.push_back(context.get());
  }
  return MarkBusy(contexts, points);
}

// What other threads of the program add meanwhile counts, as if it had come before; but not for ever.
template <typename Query>
void ServedLane::SleepUntilReady(const Query& query) const {
  if (session_.is_high_priority.load(std::memory_order_relaxed)) return;
  const Clock& clock = session_.clock;
  const TimePoint since = clock.Now();
  // The thread's own device: without the turn, the client context may be gone.
  Standstill standstill(current_device_ >= 0 ? session_.core.gate->watch() : nullptr, current_device_, since);
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

CUresult ServedLane::AwaitEvent(CUevent event) const {
  SleepUntilReady([&] { return StateOfEvent(driver(), event); });
  return driver().cuEventSynchronize(event);
}

CUresult ServedLane::AwaitMark(const Mark& mark) const {
  SleepUntilReady([&] { return mark.State(); });
  return mark.Await();
}

CUresult ServedLane::AwaitStream(CUstream stream) const {
  SleepUntilReady([&] { return driver().cuStreamQuery(stream); });
  return driver().cuStreamSynchronize(stream);
}

CUresult ServedLane::Await(const WaitPoint& point) {
  if (point.stream == nullptr) return AwaitMark(point.mark);
  const CUresult result = AwaitStream(point.stream);
  if (session_.awaited.End(point.stream)) driver().cuStreamDestroy_v2(point.stream);
  return result;
}

CUresult ServedLane::AwaitPoints(std::vector<WaitPoint>* points) {
  GiveUpTurn();
  const bool is_context_call = waiting_.has_value();
  EndContextCall();
  CUresult result = CUDA_SUCCESS;
  for (const WaitPoint& point : *points) {
    const CUresult waited = Await(point);
    if (result == CUDA_SUCCESS) result = waited;
    if (waited == CUDA_SUCCESS) session_.NoteWaited(*point.requests);
    uint64_t before = point.num_waited->load(std::memory_order_relaxed);
    while (waited == CUDA_SUCCESS && before < point.num_issued &&
           !point.num_waited->compare_exchange_weak(before, point.num_issued, std::memory_order_release)) {
    }
  }
  points->clear();
  if (is_context_call) BeginContextCall();
  CollectOutput();
  return result;
}

void ServedLane::MarkRequests(std::vector<WaitPoint>* points) {
  if (session_.slo == nullptr) return;
  for (const auto& [index, context] : session_.contexts) {
    for (const auto& stream : context->streams()) {
      if (stream->requests->has_begun() && !context->IsCapturing(*stream)) MarkStream(*stream, points);
    }
  }
}

void ServedLane::EndRequests(const std::vector<WaitPoint>& points) {
  for (const WaitPoint& point : points) {
    if (driver().cuStreamQuery(point.stream) == CUDA_SUCCESS) session_.NoteWaited(*point.requests);
    if (session_.awaited.End(point.stream)) driver().cuStreamDestroy_v2(point.stream);
  }
}

void ServedLane::CollectOutput() {
  if (session_.may_print) session_.core.device_output->Collect();
}

std::byte* ServedLane::Arena(CUresult* result) {
  *result = CUDA_SUCCESS;
  if (arena_device_ == kNoDevice) {
    *result = driver().cuMemHostRegister_v2(region_.arena(), LaneRegion::kArenaBytes,
                                            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (*result != CUDA_SUCCESS) return nullptr;
    arena_device_ = current_device_;
  }
  return region_.arena();
}

CUresult ServedLane::MarkChunks(uint64_t offset_bytes, uint64_t size_bytes, const Stream& stream) {
  if (size_bytes == 0) return CUDA_SUCCESS;
  const int device = stream.context->device();
  if (const CUresult r = EnterDevice(device); r != CUDA_SUCCESS) return r;
  CompletionSource& completions = session_.core.devices->completions(device);
  const uint64_t first = offset_bytes / shm::kArenaChunkBytes;
  const uint64_t last = (offset_bytes + size_bytes - 1) / shm::kArenaChunkBytes;
  for (uint64_t chunk = first; chunk <= last && chunk < shm::kArenaChunks; ++chunk) {
    if (const CUresult r = completions.Put(stream.real, &chunks_[chunk]); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult ServedLane::AwaitChunk(uint32_t chunk) {
  if (chunk >= shm::kArenaChunks) return Malformed("arena chunk out of range");
  GiveUpTurn();
  return AwaitMark(chunks_[chunk]);
}

}  // namespace tally::server
