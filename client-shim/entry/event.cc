// CUDA manual: Event Management. Events are named by the client, so that creating one waits for nobody.
#include <memory>
#include <utility>

#include "client-shim/entry/guard.h"
#include "client-shim/state/process.h"
#include "client-shim/state/streams.h"
#include "proto/driver/generated/client_calls.h"
#include "proto/shm/records_stream_abi.h"

namespace tally::client_shim::entry {
namespace {

constexpr unsigned kEventFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

template <typename Send>
CUresult Record(CUevent handle, CUstream stream, Send send) {
  const Process* process = CurrentProcess();
  Event* event = process != nullptr ? process->events.Find(reinterpret_cast<uint64_t>(handle)) : nullptr;
  if (event == nullptr) return send();
  event->ForgetRecording();
  // Once part of a graph it may be recorded whenever the graph runs.
  if (process->captures.any()) event->StopTracking();
  if (const CUresult result = send(); result != CUDA_SUCCESS) return result;
  // An event that other programs wait for has to be recorded when the call returns, as natively: what they do next is
  // ordered by means that the executor does not see.
  if (event->is_interprocess()) return t_thread.channel->CallEmpty(shm::Op::kFence).result;
  Recording recording;
  if (ResolveStream(stream, &recording.stream) != CUDA_SUCCESS) return CUDA_SUCCESS;
  recording.context = ContextOfStream(recording.stream);
  if (recording.context == shm::kNoContext) return CUDA_SUCCESS;
  recording.epoch = process->contexts[recording.context].epoch.load();
  recording.sequence_number_plus_1 = t_thread.channel->posted_sequence_number() + 1;
  event->NoteRecording(recording);
  return CUDA_SUCCESS;
}

// The legacy stream cannot join a capture. Asked here because the wait itself is answered before it is made.
CUresult CheckWait(Process& process, CUstream stream, CUevent event) {
  if (!process.captures.any()) return CUDA_SUCCESS;
  uint64_t word = 0;
  if (ResolveStream(stream, &word) != CUDA_SUCCESS || word != shm::kLegacyStream) return CUDA_SUCCESS;
  if (wire::cuEventQuery(event) != CUDA_ERROR_CAPTURED_EVENT) return CUDA_SUCCESS;
  process.captures.SpoilAll(t_thread.context);
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

}  // namespace

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (phEvent == nullptr || (Flags & ~kEventFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool is_interprocess = (Flags & CU_EVENT_INTERPROCESS) != 0;
  if (is_interprocess && (Flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  auto event = std::make_unique<Event>();
  event->handle = call.process->event_names.Take();
  if (event->handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  event->context = t_thread.context;
  event->flags = Flags;
  const uint64_t handle = event->handle;
  call.process->events.Insert(std::move(event));
  if (const CUresult result = call.channel->PostStruct(shm::Op::kCreateEvent, shm::CreateEvent{handle, Flags, 0});
      result != CUDA_SUCCESS)
    return result;
  *phEvent = reinterpret_cast<CUevent>(handle);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  return Record(hEvent, hStream, [&] { return wire::cuEventRecord(hEvent, hStream); });
}
CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return Record(hEvent, hStream, [&] { return wire::cuEventRecordWithFlags(hEvent, hStream, flags); });
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  if (Process* process = CurrentProcess(); process != nullptr) {
    if (const CUresult result = CheckWait(*process, hStream, hEvent); result != CUDA_SUCCESS) return result;
  }
  return wire::cuStreamWaitEvent(hStream, hEvent, Flags);
}

CUresult cuEventQuery(CUevent hEvent) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  Event* event = call.process->events.Find(reinterpret_cast<uint64_t>(hEvent));
  if (event == nullptr) return wire::cuEventQuery(hEvent);
  if (IsKnownComplete(*call.process, *event)) return CUDA_SUCCESS;
  const Recording recording = event->LatestRecording();
  const CUresult result = wire::cuEventQuery(hEvent);
  if (result != CUDA_SUCCESS) return result;
  event->NoteComplete(recording);
  return FetchManagedVariables();
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  const auto handle = reinterpret_cast<uint64_t>(hEvent);
  if (call.process->events.Remove(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = wire::cuEventDestroy_v2(hEvent);
  call.process->event_names.Return(handle);
  return result;
}
CUresult cuEventDestroy(CUevent hEvent) { return entry::cuEventDestroy_v2(hEvent); }

CUresult cuEventSynchronize(CUevent hEvent) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  const auto handle = reinterpret_cast<uint64_t>(hEvent);
  Event* event = call.process->events.Find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = call.process->captures.CheckUnsafe(); result != CUDA_SUCCESS) return result;
  if (IsKnownComplete(*call.process, *event)) return FinishWait(call.channel);
  const WaitFor wait =
      (event->flags & CU_EVENT_BLOCKING_SYNC) != 0 ? WaitFor::kAnswer : WaitForDevice(*call.process, event->context);
  const Recording recording = event->LatestRecording();
  const Reply reply = call.channel->CallStruct(shm::Op::kSynchronizeEvent, handle, wait);
  if (reply.result != CUDA_SUCCESS) return reply.result;
  event->NoteComplete(recording);
  return FinishWait(call.channel);
}

CUresult cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return wire::cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}

}  // namespace tally::client_shim::entry
