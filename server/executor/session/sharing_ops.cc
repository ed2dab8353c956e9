// Sharing: names for objects that another program may open, opening and closing them; peers among the devices.
#include "base/log.h"
#include "server/executor/session/operations.h"
#include "server/executor/session/pools.h"

namespace tally::server {
namespace {

CUresult ResultOf(const Status& status) {
  LOG_INFO("a shared object is not opened: {}", status.message());
  return status.code() == StatusCode::kFailedPrecondition ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

CUresult OpenAllocation(ServedRequest& served, ClientNames& names, const shm::OpenShared& request, WireWriter& out) {
  SessionState& session = served.session();
  if (served.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (request.handle != 0) {
    CUmemoryPool pool = nullptr;
    if (const CUresult r = names.Find(shm::HandleKind::kMemPool, request.handle, &pool); r != CUDA_SUCCESS) return r;
    if (!session.pools.opened.contains(pool)) return CUDA_ERROR_INVALID_VALUE;
  }
  const auto object = session.core.shared.Open(request.name);
  if (!object) return ResultOf(object.error());
  const auto let_go = [&](CUresult result) {
    session.core.shared.Drop(shm::SharedKind::kAllocation, object->key, false);
    return result;
  };
  if (!session.gpus.Has(static_cast<uint64_t>(object->device))) return let_go(CUDA_ERROR_INVALID_DEVICE);
  const int device = served.context()->device();
  if (request.enables_peers != 0 && device != object->device) {
    if (const CUresult r = served.EnablePeer(device, object->device); r != CUDA_SUCCESS) return let_go(r);
  }
  uint32_t& num_opens = session.opened.num_opens[object->key];
  if (num_opens != 0) {
    // One holder per session, however often it opens.
    let_go(CUDA_SUCCESS);
  } else {
    const auto own = session.memory.Find(object->key, 1);
    const bool is_own = own && own->kind != MemoryKind::kMapped;
    // It counts for who has made it, until its last holder lets go of it.
    if (is_own || !session.memory.Add({object->key, object->size_bytes, MemoryKind::kOpened, served.context_index(),
                                       nullptr, 0, object->charge})) {
      session.opened.num_opens.erase(object->key);
      return let_go(is_own ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_OUT_OF_MEMORY);
    }
  }
  ++num_opens;
  out.PutStruct(shm::OpenedShared{object->key, object->size_bytes, static_cast<uint32_t>(object->device), num_opens});
  return CUDA_SUCCESS;
}

CUresult OpenEvent(ServedRequest& served, const shm::OpenShared& request, WireWriter& out) {
  SessionState& session = served.session();
  const auto object = session.core.shared.Open(request.name);
  if (!object) return ResultOf(object.error());
  if (!session.gpus.Has(static_cast<uint64_t>(object->device))) {
    session.core.shared.Drop(shm::SharedKind::kEvent, object->key, false);
    return CUDA_ERROR_INVALID_DEVICE;
  }
  if (!session.handles(shm::HandleKind::kEvent)
           .AddNamed(request.handle, reinterpret_cast<void*>(object->key), served.context_index())) {
    session.core.shared.Drop(shm::SharedKind::kEvent, object->key, false);
    return served.Malformed("event with a name that is taken or impossible");
  }
  session.opened.events.insert(request.handle);
  out.PutStruct(shm::OpenedShared{request.handle, 0, static_cast<uint32_t>(object->device), 1});
  return CUDA_SUCCESS;
}

// The pool itself stays its owner's. What stands for it here gives out nothing: memory of it is opened piece by piece.
CUresult OpenPool(ServedRequest& served, ClientNames& names, const shm::OpenShared& request, WireWriter& out) {
  SessionState& session = served.session();
  const auto object = session.core.shared.Open(request.name);
  if (!object) return ResultOf(object.error());
  session.core.shared.Drop(shm::SharedKind::kPool, object->key, false);
  if (!session.gpus.Has(static_cast<uint64_t>(object->device))) return CUDA_ERROR_INVALID_DEVICE;
  CUmemoryPool pool = nullptr;
  if (const CUresult r = session.pools.NewOnDevice(object->device, &pool); r != CUDA_SUCCESS) return r;
  session.pools.opened.insert(pool);
  out.PutStruct(
      shm::OpenedShared{names.NameOf(shm::HandleKind::kMemPool, pool), 0, static_cast<uint32_t>(object->device), 1});
  return CUDA_SUCCESS;
}

CUresult OpenPhysical(ServedRequest& served, ClientNames& names, const shm::OpenShared& request, WireWriter& out) {
  SessionState& session = served.session();
  auto memory = session.core.shared.OpenPhysical(request.name);
  if (!memory) return ResultOf(memory.error());
  if (!session.gpus.Has((*memory)->properties.device)) return CUDA_ERROR_INVALID_DEVICE;
  const PhysicalMemory* key = memory->get();
  const uint64_t handle = NameHeld(names, session.virtual_memory.Hold(*memory));
  session.virtual_memory.Settle(key);  // if it could not be named
  out.PutStruct(shm::OpenedShared{handle, (*memory)->size_bytes, (*memory)->properties.device, 1});
  return CUDA_SUCCESS;
}

}  // namespace

CUresult ServeOffer(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  shm::Offer request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  SessionState& session = served.session();
  shm::SharedName name{};
  bool is_named = false;
  switch (static_cast<shm::SharedKind>(request.kind)) {
    case shm::SharedKind::kAllocation: {
      const auto range = session.memory.Find(request.what, 1);
      const ClientContext* context = range ? session.FindContext(range->context) : nullptr;
      if (context == nullptr || (range->kind != MemoryKind::kDevice && range->kind != MemoryKind::kAsync) ||
          range->address != request.what) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      is_named = session.core.shared.Offer(
          {shm::SharedKind::kAllocation, range->address, range->size_bytes, context->device(), range->charge}, &name);
      break;
    }
    case shm::SharedKind::kEvent: {
      const HandleTable::Entry* event = session.handles(shm::HandleKind::kEvent).FindEntry(request.what);
      if (event == nullptr || session.opened.events.contains(request.what)) return CUDA_ERROR_INVALID_HANDLE;
      const ClientContext* context = session.FindContext(event->context);
      is_named = session.core.shared.Offer({shm::SharedKind::kEvent, reinterpret_cast<uint64_t>(event->value), 0,
                                            context != nullptr ? context->device() : 0},
                                           &name);
      break;
    }
    case shm::SharedKind::kPhysical: {
      PhysicalMemory* memory = nullptr;
      VirtualMemory::Held* held = nullptr;
      if (names.Find(shm::HandleKind::kPhysicalMemory, request.what, &memory) == CUDA_SUCCESS) {
        held = session.virtual_memory.Find(memory);
      }
      if (held == nullptr || (memory->properties.requested_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      is_named = session.core.shared.OfferPhysical(held->memory, &name);
      break;
    }
    case shm::SharedKind::kPool: {
      CUmemoryPool pool = nullptr;
      if (const CUresult r = names.Find(shm::HandleKind::kMemPool, request.what, &pool); r != CUDA_SUCCESS) return r;
      const auto known = session.pools.exportable.find(pool);
      if (known == session.pools.exportable.end()) return CUDA_ERROR_INVALID_VALUE;
      is_named = session.core.shared.Offer({shm::SharedKind::kPool, reinterpret_cast<uint64_t>(pool), 0, known->second},
                                           &name);
      break;
    }
    default:
      return served.Malformed("unknown kind of shared object");
  }
  if (!is_named) return CUDA_ERROR_OPERATING_SYSTEM;
  out.PutStruct(name);
  return CUDA_SUCCESS;
}

CUresult ServeOpenShared(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  shm::OpenShared request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  switch (static_cast<shm::SharedKind>(request.name.kind)) {
    case shm::SharedKind::kAllocation:
      return OpenAllocation(served, names, request, out);
    case shm::SharedKind::kEvent:
      return OpenEvent(served, request, out);
    case shm::SharedKind::kPhysical:
      return OpenPhysical(served, names, request, out);
    case shm::SharedKind::kPool:
      return OpenPool(served, names, request, out);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult ServeCloseShared(ServedRequest& served, StreamWaits& waits, WireReader& in, WireWriter& out) {
  const uint64_t address = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  if (served.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  SessionState& session = served.session();
  const auto opened = session.opened.num_opens.find(address);
  if (opened == session.opened.num_opens.end()) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t left = --opened->second;
  out.PutWord(left);
  if (left != 0) return CUDA_SUCCESS;
  session.opened.num_opens.erase(opened);
  const auto range = session.memory.Take(address, MemoryKind::kOpened, MemoryKind::kOpened);  // until it is freed
  std::vector<WaitPoint> points;
  const CUresult marked = waits.MarkContext(shm::kNoContext, &points);
  const CUresult waited = waits.AwaitPoints(&points);
  if (session.core.shared.Drop(shm::SharedKind::kAllocation, address, false)) served.driver().cuMemFree_v2(address);
  return marked != CUDA_SUCCESS ? marked : waited;
}

CUresult ServeEnablePeer(ServedRequest& served, WireReader& in, WireWriter&) {
  shm::EnablePeer request{};
  in.TakeStruct(&request);
  const SessionGpus& gpus = served.session().gpus;
  if (!in.AtEnd() || !gpus.Has(request.from) || !gpus.Has(request.to)) return served.Malformed();
  return served.EnablePeer(static_cast<int>(request.from), static_cast<int>(request.to));
}

CUresult ServeFence(ServedRequest& served, WireReader& in, WireWriter&) {
  return in.AtEnd() ? CUDA_SUCCESS : served.Malformed();
}

}  // namespace tally::server
