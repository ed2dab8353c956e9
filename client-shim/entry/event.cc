// CUDA manual: Event Management. Events are named by the client, so that creating one waits for nobody.
#include <memory>
#include <utility>

#include "client-shim/entry/guard.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

// An event that other programs wait for has to be recorded when the call returns, as natively: what they do next is
// ordered by means that the executor does not see.
CUresult Recorded(CUevent event, CUresult posted) {
  if (posted != CUDA_SUCCESS) return posted;
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  const Event* known = call.process->events.Find(reinterpret_cast<uint64_t>(event));
  if (known == nullptr || !known->is_interprocess()) return CUDA_SUCCESS;
  return call.lane->CallEmpty(shm::Op::kFence).result;
}

constexpr unsigned kEventFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

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
  if (const CUresult result = call.lane->PostStruct(shm::Op::kCreateEvent, shm::CreateEvent{handle, Flags, 0});
      result != CUDA_SUCCESS)
    return result;
  *phEvent = reinterpret_cast<CUevent>(handle);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  return Recorded(hEvent, wire::cuEventRecord(hEvent, hStream));
}
CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return Recorded(hEvent, wire::cuEventRecordWithFlags(hEvent, hStream, flags));
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
  const Event* event = call.process->events.Find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = call.process->captures.CheckUnsafe(); result != CUDA_SUCCESS) return result;
  const WaitFor wait =
      (event->flags & CU_EVENT_BLOCKING_SYNC) != 0 ? WaitFor::kAnswer : WaitForDevice(*call.process, event->context);
  const Reply reply = call.lane->CallStruct(shm::Op::kSynchronizeEvent, handle, wait);
  return reply.result != CUDA_SUCCESS ? reply.result : call.lane->TakeAsyncError();
}

CUresult cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return wire::cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}

}  // namespace tally::client_shim::entry
