// Events.
#include "sim-driver/api/entry/entry.h"

using namespace tally::sim_driver;

namespace {

void Record(CUevent handle, CUstream stream, unsigned flags) {
  const StreamUse use = UseStream(stream);
  const EventPtr event = FindEvent(handle);
  Require((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) == 0, CUDA_ERROR_INVALID_VALUE);
  Require(event->context.lock() == use.context, CUDA_ERROR_INVALID_HANDLE);
  IssueEventRecord(use, event, (flags & CU_EVENT_RECORD_EXTERNAL) != 0);
}

}  // namespace

TALLY_EXPORT CUresult CUDAAPI cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(phEvent);
    constexpr unsigned kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    Require((Flags & ~kKnown) == 0, CUDA_ERROR_INVALID_VALUE);
    // Attribute 125 says that events cannot be shared between processes.
    Require((Flags & CU_EVENT_INTERPROCESS) == 0, CUDA_ERROR_NOT_SUPPORTED);
    *phEvent = CreateEvent(context, Flags)->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuEventDestroy_v2(CUevent hEvent) {
  TALLY_ENTRY({
    RequireInitialized();
    Require(Events().Remove(hEvent) != nullptr, CUDA_ERROR_INVALID_HANDLE);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuEventDestroy(CUevent hEvent) { return cuEventDestroy_v2(hEvent); }

TALLY_EXPORT CUresult CUDAAPI cuEventRecord(CUevent hEvent, CUstream hStream) {
  TALLY_ENTRY({ Record(hEvent, hStream, 0); });
}

TALLY_EXPORT CUresult CUDAAPI cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  TALLY_ENTRY({ Record(hEvent, hStream, flags); });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    const EventPtr event = FindEvent(hEvent);
    Require((Flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) == 0, CUDA_ERROR_INVALID_VALUE);
    IssueEventWait(use, event, (Flags & CU_EVENT_WAIT_EXTERNAL) != 0);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuEventQuery(CUevent hEvent) {
  TALLY_ENTRY({ return QueryEvent(FindEvent(hEvent)); });
}

TALLY_EXPORT CUresult CUDAAPI cuEventSynchronize(CUevent hEvent) {
  TALLY_ENTRY({ SynchronizeEvent(FindEvent(hEvent)); });
}

TALLY_EXPORT CUresult CUDAAPI cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(pMilliseconds);
    *pMilliseconds = ElapsedMilliseconds(FindEvent(hStart), FindEvent(hEnd));
  });
}

TALLY_EXPORT CUresult CUDAAPI cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return cuEventElapsedTime(pMilliseconds, hStart, hEnd);
}
