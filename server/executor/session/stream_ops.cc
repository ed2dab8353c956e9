// Streams and events beyond the generated form.
#include "proto/shm/records_stream_abi.h"
#include "server/executor/session/operations.h"

namespace tally::server {

CUresult ServeCreateStream(ServedLane& lane, WireReader& in, WireWriter& out) {
  shm::CreateStream request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return lane.Malformed();
  if (lane.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = nullptr;
  if (const CUresult r = lane.context()->CreateStream(request.flags, request.priority, &stream); r != CUDA_SUCCESS) {
    return r;
  }
  stream->handle = lane.NameOf(shm::HandleKind::kStream, stream);
  out.PutWord(stream->handle);
  return CUDA_SUCCESS;
}

CUresult ServeDestroyStream(ServedLane& lane, WireReader& in, WireWriter&) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return lane.Malformed();
  Stream* stream = nullptr;
  if (const CUresult r = lane.Find(shm::HandleKind::kStream, handle, &stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = lane.EnterDevice(stream->context->device()); r != CUDA_SUCCESS) return r;
  lane.session().AbandonCapture(*stream);
  lane.Forget(shm::HandleKind::kStream, handle);
  lane.session().host_call_words.Release(stream->host_calls);
  stream->context->DestroyStream(stream);
  return CUDA_SUCCESS;
}

CUresult ServeSynchronizeStream(ServedLane& lane, WireReader& in, WireWriter&) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return lane.Malformed();
  Stream* stream = nullptr;
  if (const CUresult r = lane.ResolveStream(handle, StreamUse::kOrdered, &stream); r != CUDA_SUCCESS) return r;
  if (stream->context->IsCapturing(*stream)) {
    return lane.driver().cuStreamSynchronize(stream->real);  // fails at once, with the native error
  }
  std::vector<WaitPoint> points;
  lane.MarkStream(*stream, &points);
  return lane.AwaitPoints(&points);
}

CUresult ServeCreateEvent(ServedLane& lane, WireReader& in, WireWriter&) {
  shm::CreateEvent request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return lane.Malformed();
  if (lane.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  // Another program uses the very same event (shared_objects.h): the driver need not be able to share it.
  const uint32_t flags = request.flags & ~static_cast<uint32_t>(CU_EVENT_INTERPROCESS);
  CUevent event = nullptr;
  if (const CUresult r = lane.driver().cuEventCreate(&event, flags); r != CUDA_SUCCESS) return r;
  if (!lane.session().handles(shm::HandleKind::kEvent).AddNamed(request.handle, event, lane.context_index())) {
    lane.driver().cuEventDestroy_v2(event);
    return lane.Malformed("event with a name that is taken or impossible");
  }
  return CUDA_SUCCESS;
}

CUresult ServeSynchronizeEvent(ServedLane& lane, WireReader& in, WireWriter&) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return lane.Malformed();
  CUevent event = nullptr;
  if (const CUresult r = lane.Find(shm::HandleKind::kEvent, handle, &event); r != CUDA_SUCCESS) return r;
  AwaitedObjects& awaited = lane.session().awaited;
  awaited.Begin(event);
  std::vector<WaitPoint> requests;
  lane.MarkRequests(&requests);
  lane.GiveUpTurn();
  const CUresult result = lane.AwaitEvent(event);
  if (awaited.End(event)) lane.driver().cuEventDestroy_v2(event);
  lane.EndRequests(requests);
  lane.CollectOutput();
  return result;
}

}  // namespace tally::server
