// Devices, contexts, printf output.
#include "server/executor/session/operations.h"

namespace tally::server {

CUresult ServeDescribeDevices(ServedRequest& served, WireReader& in, WireWriter& out) {
  if (!in.AtEnd()) return served.Malformed();
  Devices& devices = *served.session().core.devices;
  const SessionGpus& gpus = served.session().gpus;
  int version = 0;
  if (const CUresult r = served.driver().cuDriverGetVersion(&version); r != CUDA_SUCCESS) return r;
  const std::array<uint32_t, 2> head = {static_cast<uint32_t>(devices.count()), static_cast<uint32_t>(version)};
  out.PutStruct(head);
  for (int ordinal = 0; ordinal < devices.count(); ++ordinal) {
    shm::DeviceDescription description{};
    if (gpus.Has(static_cast<uint64_t>(ordinal))) {
      const CUresult r = devices.Describe(ordinal, gpus.ordinals().front(), &description);
      if (r != CUDA_SUCCESS) return r;
      description.can_access_peer &= gpus.mask();
      // A client's device is as large as what it may have of it.
      description.total_memory_bytes = served.session().quota->TotalOf(description.total_memory_bytes);
    }
    description.order = gpus.OrderOf(ordinal);
    out.PutStruct(description);
  }
  served.ForgetCurrentDevice();
  return CUDA_SUCCESS;
}

CUresult ServeOpenContext(ServedRequest& served, WireReader& in, WireWriter&) {
  shm::OpenContext request{};
  in.TakeStruct(&request);
  SessionState& session = served.session();
  if (!in.AtEnd() || request.context >= shm::kMaxContexts || !session.gpus.Has(request.device) ||
      (request.context < shm::kMaxDevices && request.context != request.device)) {
    return served.Malformed("context that cannot be opened");
  }
  CUcontext real = nullptr;
  if (const CUresult r = session.core.devices->Context(static_cast<int>(request.device), &real); r != CUDA_SUCCESS) {
    return r;
  }
  if (session.contexts.contains(request.context)) {
    return request.context < shm::kMaxDevices ? CUDA_SUCCESS : served.Malformed("context opened twice");
  }
  const auto device = static_cast<int>(request.device);
  session.contexts.emplace(
      request.context,
      std::make_unique<ClientContext>(served.driver(), session.core.devices->completions(device), request.context,
                                      device, request.flags, &session.num_captures, &session.awaited,
                                      session.busy.On(device), session.stream_priorities()));
  return CUDA_SUCCESS;
}

CUresult ServeCloseContext(ServedRequest& served, StreamWaits& waits, WireReader& in, WireWriter&) {
  shm::CloseContext request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  SessionState& session = served.session();
  const auto found = session.contexts.find(request.context);
  if (found == session.contexts.end()) return CUDA_ERROR_INVALID_CONTEXT;
  CUcontext real = nullptr;
  if (const CUresult r = session.core.devices->Context(found->second->device(), &real); r != CUDA_SUCCESS) return r;
  served.driver().cuCtxSetCurrent(real);
  served.ForgetCurrentDevice();
  // Waits for the context's work with the sequencer held: what comes after must find everything gone.
  const bool is_only_one = session.contexts.size() == 1;
  session.DestroyContents(request.context);
  // As natively: not when the last user of a primary context lets go, which the runtime does in exit().
  if (request.is_reset != 0 || request.context >= shm::kMaxDevices) waits.CollectOutput();
  if (request.is_reset != 0 && is_only_one) session.code.ReloadLibraries();
  return CUDA_SUCCESS;
}

CUresult ServeSynchronizeContext(ServedRequest& served, StreamWaits& waits, WireReader& in, WireWriter&) {
  if (!in.AtEnd()) return served.Malformed();
  if (served.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  for (const auto& stream : served.context()->streams()) {
    if (served.context()->IsCapturing(*stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  std::vector<WaitPoint> points;
  const CUresult marked = waits.MarkContext(served.context_index(), &points);
  const CUresult waited = waits.AwaitPoints(&points);
  return marked != CUDA_SUCCESS ? marked : waited;
}

CUresult ServeFetchOutput(ServedRequest& served, WireReader& in, WireWriter& out) {
  if (!in.AtEnd()) return served.Malformed();
  served.ReleaseSequencer();
  const std::string text = served.session().output.Take(kMaxReplyPayloadBytes / 2);
  out.PutText(text);
  return CUDA_SUCCESS;
}

namespace {

CUresult FindContextEvent(ServedRequest& served, ClientNames& names, WireReader& in, CUevent* event) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  if (served.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return names.Find(shm::HandleKind::kEvent, handle, event);
}

}  // namespace

CUresult ServeRecordContextEvent(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  CUevent event = nullptr;
  if (const CUresult r = FindContextEvent(served, names, in, &event); r != CUDA_SUCCESS) return r;
  return served.context()->RecordAll(event);
}

CUresult ServeWaitContextEvent(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  CUevent event = nullptr;
  if (const CUresult r = FindContextEvent(served, names, in, &event); r != CUDA_SUCCESS) return r;
  return served.context()->WaitAll(event);
}

CUresult ServeNoteRefusal(ServedRequest& served, WireReader& in, WireWriter&) {
  shm::NoteRefusal note{};
  in.TakeStruct(&note);
  if (!in.AtEnd() || !served.session().core.refused_calls.Add(note.symbol_index)) return served.Malformed();
  served.session().counters.Add("refused_calls");
  return CUDA_SUCCESS;
}

}  // namespace tally::server
