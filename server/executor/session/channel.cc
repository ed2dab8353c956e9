#include "server/executor/session/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "base/thread_urgency.h"
#include "proto/shm/operations_abi.h"
#include "proto/shm/records_launch_abi.h"
#include "server/executor/session/operations.h"
#include "server/executor/session/wire_codec.h"
#include "server/executor/session/wire_table.h"

namespace tally::server {
namespace {

bool IsWireOp(uint16_t op) { return op >= shm::kFirstWireOp && op - shm::kFirstWireOp < static_cast<int>(kNumWireOps); }

std::string NameOfOp(uint16_t op) {
  return IsWireOp(op) ? kWireTable[op - shm::kFirstWireOp].name : fmt::format("operation {}", op);
}

// How exact the end of work is known that its program does not wait for; looking costs about 2 us.
constexpr auto kLongestLook = std::chrono::milliseconds(5);

bool IsFailure(CUresult result) { return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY; }

}  // namespace

Channel::Channel(ChannelSurroundings& surroundings, uint32_t index, ChannelRegion region)
    : surroundings_(surroundings),
      index_(index),
      region_(std::move(region)),
      reader_(region_),
      writer_(region_),
      served_(surroundings.state, surroundings.sequencer, index, region_) {}

Channel::~Channel() { Join(); }

Status Channel::Start() {
  auto thread = StartThread(fmt::format("channel-{}", index_), [this] { Run(); });
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  return OkStatus();
}

void Channel::Wake() {
  reader_.Wake();
  writer_.Wake();
}

void Channel::Join() {
  if (thread_.joinable()) thread_.join();
}

void Channel::Run() {
  Request request{};
  while (!surroundings_.stopping.load(std::memory_order_acquire)) {
    switch (reader_.Read(&request)) {
      case RequestReader::Outcome::kEmpty:
        AwaitRequest();
        break;
      case RequestReader::Outcome::kMalformed:
        Nonsense(reader_.reason());
        return;
      case RequestReader::Outcome::kRequest:
        if (!Serve(request)) return;
        break;
    }
  }
}

void Channel::AwaitRequest() {
  const SessionWindow* const window = surroundings_.state.window.get();
  if (window != nullptr && window->launches().has_launches()) {
    if (reader_.LookFor(surroundings_.stopping, LaunchWindow::kPatience)) return;
    IssueHeldWhileIdle();
  }
  const bool is_high_priority = surroundings_.state.is_high_priority.load(std::memory_order_relaxed);
  if (is_high_priority != is_urgent_) SetThreadUrgent(is_urgent_ = is_high_priority);
  reader_.Wait(surroundings_.stopping, is_high_priority ? RequestReader::kPatienceForLatency : RequestReader::kPatience,
               on_silence_);
}

std::chrono::nanoseconds Channel::LookAtWork(std::chrono::nanoseconds silent_for) {
  SessionState& session = surroundings_.state;
  if (session.core.fault() != CUDA_SUCCESS) return {};
  if (session.pools.is_due() && !session.busy.IsBusy() && surroundings_.sequencer.TryBorrow()) {
    session.pools.Settle();
    surroundings_.sequencer.Return();
  }
  if (!session.busy.IsBusy()) return {};
  if (surroundings_.sequencer.TryBorrow()) {
    served_.waits.LookAtStreams();
    surroundings_.sequencer.Return();
  }
  if (!session.busy.IsBusy()) return {};
  return std::clamp<std::chrono::nanoseconds>(silent_for / 16, RequestReader::kFirstLook, kLongestLook);
}

// If another channel has the sequencer, its request issues what is held, or that channel does when it is idle.
void Channel::IssueHeldWhileIdle() {
  if (!surroundings_.sequencer.TryBorrow()) return;
  served_.request.IssueHeld(WindowEnd::kIdle);
  ReportLateFailure();  // whoever comes next finds it
  surroundings_.sequencer.Return();
}

bool Channel::Nonsense(const std::string& reason) {
  surroundings_.on_nonsense(fmt::format("channel {}: {}", index_, reason));
  return false;
}

bool Channel::MayGoOn(Sequencer::Outcome outcome) {
  switch (outcome) {
    case Sequencer::Outcome::kMine:
      return true;
    case Sequencer::Outcome::kStopped:
      return false;
    case Sequencer::Outcome::kNonsense:
      break;
  }
  return Nonsense("a sequence number was used twice");
}

bool Channel::Serve(const Request& request) {
  if (request.header.op == static_cast<uint16_t>(shm::Op::kAwaitCallback)) return ServeAwaitCallback(request);
  if (!MayGoOn(surroundings_.sequencer.Take(request.header.sequence_number, surroundings_.stopping))) return false;
  surroundings_.state.counters.Add("requests");
  reply_.Clear();
  if ((request.header.flags & shm::kWantReply) != 0) writer_.Prefetch();
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  try {
    result = CarryOut(request, reply_);
  } catch (const std::bad_alloc&) {
    LOG_WARNING("out of memory in {}", NameOfOp(request.header.op));
  }
  served_.request.EndContextCall();
  ReportLateFailure();
  served_.request.ReleaseSequencer();
  if (const char* reason = served_.request.malformed_reason(); reason != nullptr) {
    return Nonsense(fmt::format("{}: {}", NameOfOp(request.header.op), reason));
  }
  if (surroundings_.state.host_memory.WasTruncated()) {
    return Nonsense("the client has truncated a file that it had registered as memory");
  }
  return Answer(request, result);
}

CUresult Channel::CarryOut(const Request& request, WireWriter& out) {
  const shm::RequestHeader& header = request.header;
  served_.request.HoldSequencer(header);
  ExecutorCore& core = surroundings_.state.core;
  // A lost context answers everything alike, without bothering the driver.
  if (const CUresult fault = surroundings_.state.fault(); fault != CUDA_SUCCESS) return fault;
  if (!IssuesWhatIsHeld(header.op)) served_.request.IssueHeld(WindowEnd::kRequest);
  CUresult result = served_.request.EnterContext(header.context);
  if (MayWaitForContext(header.op)) served_.request.BeginContextCall();
  if (result == CUDA_SUCCESS) {
    WireReader in(request.payload);
    if (const Operation operation = FindOperation(header.op); operation != nullptr) {
      result = operation(served_, in, out);
    } else if (IsWireOp(header.op)) {
      if (!ServeBeforeWire(served_.request, served_.names, header.op, in, out, &result)) {
        result = kWireTable[header.op - shm::kFirstWireOp].serve(served_.request, served_.names, in, out);
      }
      if (result != CUDA_SUCCESS) out.Clear();
    } else {
      served_.request.Malformed("unknown operation");
    }
  }
  if (result == CUDA_SUCCESS && out.overflowed()) {
    LOG_WARNING("{}: the answer is longer than a reply can be; refused", NameOfOp(header.op));
    result = CUDA_ERROR_NOT_SUPPORTED;
  }
  if (out.overflowed()) out.Clear();
  if (IsSticky(result) && surroundings_.state.fault() == CUDA_SUCCESS) {
    core.ReportFault(result, fmt::format("{}: {}", NameOfOp(header.op), CudaErrorName(core.driver, result)));
  }
  return result;
}

void Channel::NoteAsyncFailure(CUresult result) {
  uint32_t none = 0;  // the first one stays
  surroundings_.header.async_error.compare_exchange_strong(none, static_cast<uint32_t>(result));
}

void Channel::ReportLateFailure() {
  const CUresult result = served_.request.TakeLateFailure();
  if (!IsFailure(result)) return;
  ExecutorCore& core = surroundings_.state.core;
  if (IsSticky(result)) core.ReportFault(result, fmt::format("a held launch: {}", CudaErrorName(core.driver, result)));
  surroundings_.state.counters.Add("failed_calls");
  NoteAsyncFailure(result);
}

void Channel::CountFailure(const Request& request, CUresult result) {
  FigureCounters& counters = surroundings_.state.counters;
  if (result == CUDA_ERROR_NOT_SUPPORTED) {
    counters.Add("refused_calls");
    // A hand-written operation serves several functions: which one it was, only the client knows.
    if (IsWireOp(request.header.op)) {
      surroundings_.state.core.refused_calls.Add(FindDriverSymbol(NameOfOp(request.header.op)));
    }
  } else {
    counters.Add("failed_calls");
  }
  if (LogEnabled(LogLevel::kDebug)) {
    LOG_DEBUG("{}: {}", NameOfOp(request.header.op), CudaErrorName(surroundings_.state.driver, result));
  }
}

bool Channel::Answer(const Request& request, CUresult result) {
  if (IsFailure(result)) CountFailure(request, result);
  if ((request.header.flags & shm::kWantReply) == 0) {
    if (IsFailure(result)) NoteAsyncFailure(result);
    return true;
  }
  const uint16_t flags = surroundings_.state.output.empty() ? 0 : static_cast<uint16_t>(shm::kOutputPending);
  if (writer_.Write(request.header.op, flags, static_cast<uint32_t>(result), reply_.bytes(), surroundings_.stopping)) {
    return true;
  }
  return surroundings_.stopping.load() ? false : Nonsense("reply ring: impossible read position");
}

bool Channel::ServeAwaitCallback(const Request& request) {
  WireReader in(request.payload);
  shm::AwaitCallback wait{};
  in.TakeStruct(&wait);
  if (!in.AtEnd() || (request.header.flags & shm::kWantReply) == 0) return Nonsense("malformed wait for callbacks");
  // The acknowledgement does not hold the sequencer: a channel that does may be waiting for just this.
  if (running_callback_ != nullptr) {
    if (wait.finished_token != running_callback_->token)
      return Nonsense("a callback was finished that was not running");
    surroundings_.state.host_calls.queue->Finish(running_callback_);
    running_callback_ = nullptr;
  }
  if (!MayGoOn(surroundings_.sequencer.Skip(request.header.sequence_number))) return false;
  running_callback_ = surroundings_.state.host_calls.queue->Next(surroundings_.stopping);
  if (running_callback_ == nullptr) return false;
  reply_.Clear();
  reply_.PutWord(running_callback_->token);
  const std::array<uint32_t, 2> status = {static_cast<uint32_t>(running_callback_->stream_status), 0};
  reply_.PutStruct(status);
  return Answer(request, CUDA_SUCCESS);
}

}  // namespace tally::server
