// Streams and events beyond the generated form.
#include "proto/shm/records_stream_abi.h"
#include "server/executor/session/operations.h"

namespace tally::server {

CUresult ServeCreateStream(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  shm::CreateStream request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  if (served.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = nullptr;
  if (const CUresult r = served.context()->CreateStream(request.flags, request.priority, &stream); r != CUDA_SUCCESS) {
    return r;
  }
  stream->handle = names.NameOf(shm::HandleKind::kStream, stream);
  out.PutWord(stream->handle);
  return CUDA_SUCCESS;
}

CUresult ServeDestroyStream(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  Stream* stream = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kStream, handle, &stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = served.EnterDevice(stream->context->device()); r != CUDA_SUCCESS) return r;
  served.session().AbandonCapture(*stream);
  names.Forget(shm::HandleKind::kStream, handle);
  served.session().host_calls.words.Release(stream->host_calls);
  stream->context->DestroyStream(stream);
  return CUDA_SUCCESS;
}

CUresult ServeSynchronizeStream(ServedRequest& served, ClientNames& names, StreamWaits& waits, WireReader& in,
                                WireWriter&) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  Stream* stream = nullptr;
  if (const CUresult r = names.ResolveStream(handle, StreamUse::kOrdered, &stream); r != CUDA_SUCCESS) return r;
  if (stream->context->IsCapturing(*stream)) {
    return served.driver().cuStreamSynchronize(stream->real);  // fails at once, with the native error
  }
  std::vector<WaitPoint> points;
  waits.MarkStream(*stream, &points);
  return waits.AwaitPoints(&points);
}

CUresult ServeCreateEvent(ServedRequest& served, WireReader& in, WireWriter&) {
  shm::CreateEvent request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  if (served.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUevent event = nullptr;
  CUresult made = served.driver().cuEventCreate(&event, request.flags);
  constexpr auto kInterprocess = static_cast<uint32_t>(CU_EVENT_INTERPROCESS);
  if (made == CUDA_ERROR_NOT_SUPPORTED && (request.flags & kInterprocess) != 0) {
    // Sessions of this executor use the very same event (shared_objects.h): the driver need not be able to share it.
    made = served.driver().cuEventCreate(&event, request.flags & ~kInterprocess);
  }
  if (made != CUDA_SUCCESS) return made;
  if (!served.session().handles(shm::HandleKind::kEvent).AddNamed(request.handle, event, served.context_index())) {
    served.driver().cuEventDestroy_v2(event);
    return served.Malformed("event with a name that is taken or impossible");
  }
  return CUDA_SUCCESS;
}

CUresult ServeSynchronizeEvent(ServedRequest& served, ClientNames& names, StreamWaits& waits, WireReader& in,
                               WireWriter&) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  CUevent event = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kEvent, handle, &event); r != CUDA_SUCCESS) return r;
  AwaitedObjects& awaited = served.session().awaited;
  awaited.Begin(event);
  std::vector<WaitPoint> requests;
  waits.MarkRequests(&requests);
  const uint64_t num_put = served.session().busy.num_put();
  served.ReleaseSequencer();
  const CUresult result = waits.AwaitEvent(event);
  if (result == CUDA_SUCCESS) served.session().busy.OnEvent(num_put, served.session().clock.Now());
  if (awaited.End(event)) served.driver().cuEventDestroy_v2(event);
  waits.EndRequests(requests);
  waits.CollectOutput();
  return result;
}

}  // namespace tally::server
