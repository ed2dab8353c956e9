// Device memory: allocation, pools, freeing. (Pinned memory is allocated over the session socket.)
#include "server/executor/session/operations.h"
#include "server/executor/session/pools.h"

namespace tally::server {
namespace {

std::optional<MemoryRange> FindGraphMemory(const SessionState& session, uint64_t address) {
  const std::optional<MemoryRange> range = session.memory.Find(address, 0);
  return range && range->address == address && range->kind == MemoryKind::kGraph ? range : std::nullopt;
}

// `wanted`: the size of what is not pitched.
CUresult AllocateByDriver(const DriverTable& driver, const shm::Allocate& request, uint64_t wanted,
                          CUdeviceptr* address, size_t* pitch) {
  return request.height != 0
             ? driver.cuMemAllocPitch_v2(address, pitch, request.size_bytes, request.height, request.element_bytes)
             : driver.cuMemAlloc_v2(address, wanted);
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
  const int device = served.context()->device();
  auto charge = session.TakeCharge(device, wanted);
  if (!charge) return CUDA_ERROR_OUT_OF_MEMORY;
  // The driver may wait for running kernels, and those for what other threads have yet to launch.
  served.ReleaseSequencer();
  CUdeviceptr address = 0;
  size_t pitch = 0;
  const bool is_spread =
      request.height == 0 && session.spread_memory != nullptr && session.spread_memory->Wants(wanted);
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (is_spread) result = session.spread_memory->Allocate(device, wanted, &address);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY) {
    result = AllocateByDriver(served.driver(), request, wanted, &address, &pitch);
  }
  const uint64_t size = request.height != 0 ? pitch * request.height : wanted;
  // The driver's pitch makes it larger.
  const bool fits = *charge == nullptr || (*charge)->TryResize(size);
  const MemoryRange range{address, size, MemoryKind::kDevice, served.context_index(), nullptr, 0, *charge};
  if (result == CUDA_SUCCESS && (!fits || !session.memory.Add(range))) {
    session.FreeDeviceMemory(address);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
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
  served.session().graphs.launches.OnFreed(address);
  const ClientContext* home = served.session().FindContext(range->context);
  std::vector<WaitPoint> points;
  const CUresult marked = waits.MarkDevice(home != nullptr ? home->device() : served.context()->device(), &points);
  const CUresult waited = waits.AwaitPoints(&points);
  // Memory that another program has open stays until that program is done with it.
  const bool is_last = served.session().core.shared.Drop(shm::SharedKind::kAllocation, address, true);
  const CUresult freed = is_last ? served.session().FreeDeviceMemory(address) : CUDA_SUCCESS;
  // What a graph left behind is gone for good.
  if (range->kind == MemoryKind::kGraph && range->owner == nullptr) {
    served.session().memory.Take(address, MemoryKind::kGraph, MemoryKind::kGraph);
  }
  if (range->kind == MemoryKind::kAsync) served.session().pools.NoteFreed();
  if (marked != CUDA_SUCCESS) return marked;
  return waited != CUDA_SUCCESS ? waited : freed;
}

CUresult ServeAllocateAsync(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  shm::AllocateAsync request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  SessionState& session = served.session();
  Stream* stream = nullptr;
  if (const CUresult r = names.ResolveStream(request.stream, StreamUse::kOrdered, &stream); r != CUDA_SUCCESS) return r;
  CUmemoryPool pool = nullptr;
  if (request.pool != 0) {
    if (const CUresult r = names.Find(shm::HandleKind::kMemPool, request.pool, &pool); r != CUDA_SUCCESS) return r;
    if (session.pools.opened.contains(pool)) return CUDA_ERROR_INVALID_VALUE;  // as natively: another program's
  } else if (const CUresult r = session.pools.Default(stream->context->device(), &pool); r != CUDA_SUCCESS) {
    return r;
  }
  const CUgraph graph = stream->context->CapturedGraph(*stream);
  // That of a graph counts by its nodes, that of a pool by what the pool has reserved.
  const auto charge = session.TakeCharge(stream->context->device(), graph != nullptr ? request.size_bytes : 0);
  if (!charge || (graph == nullptr && !session.pools.MayAllocate(pool, stream->context->device(), request.size_bytes)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr address = 0;
  if (const CUresult r = served.driver().cuMemAllocFromPoolAsync(&address, request.size_bytes, pool, stream->real);
      r != CUDA_SUCCESS) {
    return r;
  }
  const uint32_t context = served.context_index();
  const bool is_known = graph != nullptr
                            ? session.graphs.memory.Add(graph, address, request.size_bytes, context, *charge)
                            : session.pools.HasRoom(pool) &&
                                  session.memory.Add({address, request.size_bytes, MemoryKind::kAsync, context});
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
  if (session.spread_memory != nullptr && session.spread_memory->Has(request.address)) {
    session.graphs.launches.OnFreed(request.address);
    Mark end;
    const CUresult marked = session.core.devices->completions(stream->device).Put(stream->real, &end);
    if (marked != CUDA_SUCCESS) return marked;
    session.spread_memory->FreeBehind(request.address, std::move(end));
    session.memory.Take(request.address, range->kind, range->kind);
    return CUDA_SUCCESS;
  }
  session.pools.NoteFreed();
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
  served.session().pools.Settle();
  const MemoryQuota& quota = *served.session().quota;
  out.PutWord(quota.FreeOf(served.context()->device(), free_bytes));
  out.PutWord(quota.TotalOf(total_bytes));
  return CUDA_SUCCESS;
}

}  // namespace tally::server
