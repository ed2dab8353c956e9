// Device memory: allocation, pools, freeing. (Pinned memory is allocated over the session socket.)
#include "server/executor/session/operations.h"
#include "server/executor/session/pools.h"
#include "server/executor/session/quota.h"

namespace tally::server {
namespace {

std::optional<MemoryRange> FindGraphMemory(const SessionState& session, uint64_t address) {
  const std::optional<MemoryRange> range = session.memory.Find(address, 0);
  return range && range->address == address && range->kind == MemoryKind::kGraph ? range : std::nullopt;
}

}  // namespace

CUresult ServeAllocate(ServedRequest& served, WireReader& in, WireWriter& out) {
  shm::Allocate request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  if (served.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  SessionState& session = served.session();
  if (request.height != 0 && request.size_bytes > UINT64_MAX / 2 / request.height) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t wanted = request.height != 0 ? request.size_bytes * request.height : request.size_bytes;
  if (!session.memory.Reserve(wanted, session.core.limits.device_memory_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  // The driver may wait for running kernels, and those for what other threads have yet to launch.
  served.ReleaseSequencer();
  CUdeviceptr address = 0;
  size_t pitch = 0;
  CUresult result = request.height != 0 ? served.driver().cuMemAllocPitch_v2(&address, &pitch, request.size_bytes,
                                                                             request.height, request.element_bytes)
                                        : served.driver().cuMemAlloc_v2(&address, wanted);
  const uint64_t size = request.height != 0 ? pitch * request.height : wanted;
  if (result == CUDA_SUCCESS && !session.memory.Add({address, size, MemoryKind::kDevice, served.context_index()})) {
    served.driver().cuMemFree_v2(address);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  session.memory.CountPhysical(wanted, false);
  if (result != CUDA_SUCCESS) return result;
  out.PutWord(address);
  out.PutWord(pitch);
  return CUDA_SUCCESS;
}

CUresult ServeFree(ServedRequest& served, StreamWaits& waits, WireReader& in, WireWriter&) {
  const uint64_t address = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  if (served.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  // Out of the map with the sequencer held: later requests, of any channel, find it freed. What a graph allocated keeps
  // its addresses: its next launch may allocate there again.
  auto range = served.session().memory.Take(address, MemoryKind::kDevice, MemoryKind::kAsync);
  if (!range) range = FindGraphMemory(served.session(), address);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  const ClientContext* home = served.session().FindContext(range->context);
  std::vector<WaitPoint> points;
  const CUresult marked = waits.MarkDevice(home != nullptr ? home->device() : served.context()->device(), &points);
  const CUresult waited = waits.AwaitPoints(&points);
  // Memory that another program has open stays until that program is done with it.
  const bool is_last = served.session().core.shared.Drop(shm::SharedKind::kAllocation, address, true);
  const CUresult freed = is_last ? served.driver().cuMemFree_v2(address) : CUDA_SUCCESS;
  if (marked != CUDA_SUCCESS) return marked;
  return waited != CUDA_SUCCESS ? waited : freed;
}

CUresult ServeAllocateAsync(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  shm::AllocateAsync request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  SessionState& session = served.session();
  if (!FitsQuota(session, request.size_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Stream* stream = nullptr;
  if (const CUresult r = names.ResolveStream(request.stream, StreamUse::kOrdered, &stream); r != CUDA_SUCCESS) return r;
  CUmemoryPool pool = nullptr;
  if (request.pool != 0) {
    if (const CUresult r = names.Find(shm::HandleKind::kMemPool, request.pool, &pool); r != CUDA_SUCCESS) return r;
    if (session.pools.opened.contains(pool)) return CUDA_ERROR_INVALID_VALUE;  // as natively: another program's
  } else if (const CUresult r = session.pools.Default(stream->context->device(), &pool); r != CUDA_SUCCESS) {
    return r;
  }
  CUdeviceptr address = 0;
  if (const CUresult r = served.driver().cuMemAllocFromPoolAsync(&address, request.size_bytes, pool, stream->real);
      r != CUDA_SUCCESS) {
    return r;
  }
  const CUgraph graph = stream->context->CapturedGraph(*stream);
  const bool is_known =
      graph != nullptr ? session.graphs.memory.Add(graph, address, request.size_bytes, served.context_index())
                       : session.memory.Add({address, request.size_bytes, MemoryKind::kAsync, served.context_index()});
  if (!is_known) {
    served.driver().cuMemFreeAsync(address, stream->real);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  out.PutWord(address);
  out.PutWord(graph != nullptr ? 1 : 0);
  return CUDA_SUCCESS;
}

CUresult ServeFreeAsync(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  shm::FreeAsync request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  SessionState& session = served.session();
  const std::optional<MemoryRange> range = session.memory.Find(request.address, 0);
  if (!range || range->address != request.address ||
      (range->kind != MemoryKind::kDevice && range->kind != MemoryKind::kAsync && range->kind != MemoryKind::kGraph)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Stream* stream = nullptr;
  if (const CUresult r = names.ResolveStream(request.stream, StreamUse::kOrdered, &stream); r != CUDA_SUCCESS) return r;
  const CUgraph graph = stream->context->CapturedGraph(*stream);
  if (graph != nullptr) {
    const CUresult recorded = served.driver().cuMemFreeAsync(request.address, stream->real);
    if (recorded == CUDA_SUCCESS) session.graphs.memory.OnFreed(graph, request.address);
    return recorded;
  }
  const bool is_last = session.core.shared.Drop(shm::SharedKind::kAllocation, request.address, true);
  const CUresult result = is_last ? served.driver().cuMemFreeAsync(request.address, stream->real) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return result;
  if (range->kind != MemoryKind::kGraph || range->owner == nullptr) {
    session.memory.Take(request.address, range->kind, range->kind);
  }
  return CUDA_SUCCESS;
}

CUresult ServeFreeHost(ServedRequest& served, StreamWaits& waits, WireReader& in, WireWriter&) {
  const uint64_t address = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  SessionState& session = served.session();
  if (!session.memory.Take(address, MemoryKind::kPinned, MemoryKind::kPinned)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<WaitPoint> points;
  const CUresult marked = waits.MarkContext(shm::kNoContext, &points);
  const CUresult waited = waits.AwaitPoints(&points);
  session.host_memory.Free(address);
  return marked != CUDA_SUCCESS ? marked : waited;
}

CUresult ServeMemoryAmount(ServedRequest& served, WireReader& in, WireWriter& out) {
  if (!in.AtEnd()) return served.Malformed();
  if (served.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (const CUresult r = served.driver().cuMemGetInfo_v2(&free_bytes, &total_bytes); r != CUDA_SUCCESS) return r;
  const uint64_t limit = served.session().core.limits.device_memory_bytes;
  if (limit != 0) {
    const uint64_t used = std::min(served.session().memory.device_bytes(), limit);
    free_bytes = std::min<size_t>(free_bytes, limit - used);
    total_bytes = std::min<size_t>(total_bytes, limit);
  }
  out.PutWord(free_bytes);
  out.PutWord(total_bytes);
  return CUDA_SUCCESS;
}

}  // namespace tally::server
