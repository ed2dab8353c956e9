// Sharing: names for objects that another program may open, opening and closing them; peers among the devices.
#include "base/log.h"
#include "server/executor/session/operations.h"
#include "server/executor/session/pools.h"

namespace tally::server {
namespace {

Collectives::Key KeyOf(const shm::SharedName& name) { return {name.token[0], name.token[1]}; }
bool IsMemory(const shm::SharedName& name) {
  const auto kind = static_cast<shm::SharedKind>(name.kind);
  return kind == shm::SharedKind::kAllocation || kind == shm::SharedKind::kPhysical;
}

CUresult ResultOf(const Status& status) {
  LOG_INFO("a shared object is not opened: {}", status.message());
  return status.code() == StatusCode::kFailedPrecondition ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

// What another executor's session has offered is opened by the driver, and counts for who opens it, too.
bool IsForeign(const Status& status) { return status.code() == StatusCode::kFailedPrecondition; }

CUresult OpenForeignMemory(ServedRequest& served, const shm::SharedName& name, WireWriter& out) {
  SessionState& session = served.session();
  ForeignObjects& foreign = session.core.foreign;
  ForeignObjects::Allocation opened;
  if (const CUresult r = foreign.OpenMemory(name, served.context()->device(), &opened); r != CUDA_SUCCESS) return r;
  if (!session.gpus.Has(static_cast<uint64_t>(opened.device))) {
    foreign.CloseMemory(opened.address);
    return CUDA_ERROR_INVALID_DEVICE;
  }
  uint32_t& num_opens = session.opened.num_opens[opened.address];
  if (num_opens != 0) {
    foreign.CloseMemory(opened.address);  // once for a session, however often it opens
  } else {
    const auto charge = session.TakeCharge(opened.device, opened.size_bytes);
    if (!charge || !session.memory.Add({opened.address, opened.size_bytes, MemoryKind::kForeign, served.context_index(),
                                        nullptr, 0, *charge})) {
      session.opened.num_opens.erase(opened.address);
      foreign.CloseMemory(opened.address);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  ++num_opens;
  out.PutStruct(shm::OpenedShared{opened.address, opened.size_bytes, static_cast<uint32_t>(opened.device), num_opens});
  return CUDA_SUCCESS;
}

CUresult ImportPhysical(SessionState& session, const shm::SharedName& name, std::shared_ptr<PhysicalMemory>* memory) {
  ForeignObjects::Answer answer;
  if (const CUresult r = session.core.foreign.Ask(name, &answer); r != CUDA_SUCCESS) return r;
  auto charge = session.TakeCharge(static_cast<int>(answer.reply.device), answer.reply.size_bytes);
  if (!charge) return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult r = session.core.foreign.Import(answer, memory); r != CUDA_SUCCESS) return r;
  (*memory)->charge = std::move(*charge);
  *memory = session.core.shared.AddImported(name, std::move(*memory));
  return CUDA_SUCCESS;
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
  if (!object && IsForeign(object.error()) && request.handle == 0) return OpenForeignMemory(served, request.name, out);
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
  CUevent event = nullptr;
  int device = 0;
  if (object) {
    event = reinterpret_cast<CUevent>(object->key);
    device = object->device;
  } else if (!IsForeign(object.error())) {
    return ResultOf(object.error());
  } else if (const CUresult r = session.core.foreign.OpenEvent(request.name, &event, &device); r != CUDA_SUCCESS) {
    return r;
  }
  const auto drop = [&] {
    const bool is_last = session.core.shared.Drop(shm::SharedKind::kEvent, reinterpret_cast<uint64_t>(event), false);
    if (is_last) served.driver().cuEventDestroy_v2(event);
  };
  if (!session.gpus.Has(static_cast<uint64_t>(device))) {
    drop();
    return CUDA_ERROR_INVALID_DEVICE;
  }
  if (!session.handles(shm::HandleKind::kEvent).AddNamed(request.handle, event, served.context_index())) {
    drop();
    return served.Malformed("event with a name that is taken or impossible");
  }
  session.opened.events.insert(request.handle);
  out.PutStruct(shm::OpenedShared{request.handle, 0, static_cast<uint32_t>(device), 1});
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
  if (!memory && !IsForeign(memory.error())) return ResultOf(memory.error());
  if (!memory) {
    memory = nullptr;
    if (const CUresult r = ImportPhysical(session, request.name, &*memory); r != CUDA_SUCCESS) return r;
  }
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
      if (session.spread_memory != nullptr && session.spread_memory->Has(range->address))
        return CUDA_ERROR_NOT_SUPPORTED;
      is_named =
          session.core.shared.Offer({shm::SharedKind::kAllocation, range->address, range->size_bytes, context->device(),
                                     range->charge, HandleOfMemory(served.driver(), range->address)},
                                    &name);
      break;
    }
    case shm::SharedKind::kEvent: {
      const HandleTable::Entry* event = session.handles(shm::HandleKind::kEvent).FindEntry(request.what);
      if (event == nullptr || session.opened.events.contains(request.what)) return CUDA_ERROR_INVALID_HANDLE;
      const ClientContext* context = session.FindContext(event->context);
      is_named = session.core.shared.Offer({shm::SharedKind::kEvent, reinterpret_cast<uint64_t>(event->value), 0,
                                            context != nullptr ? context->device() : 0, SharedCharge{},
                                            HandleOfEvent(served.driver(), static_cast<CUevent>(event->value))},
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
      is_named = session.core.shared.OfferPhysical(
          held->memory, [&] { return HandleOfPhysical(served.driver(), memory->real); }, &name);
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
  if (IsMemory(name)) session.core.collectives.MayUse(&session, KeyOf(name));
  out.PutStruct(name);
  return CUDA_SUCCESS;
}

CUresult ServeOpenShared(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  shm::OpenShared request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  if (IsMemory(request.name) && !served.session().core.collectives.MayUse(&served.session(), KeyOf(request.name))) {
    LOG_ERROR("{}", kSecondRank);
    return CUDA_ERROR_NOT_PERMITTED;
  }
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
  const auto range = session.memory.Take(address, MemoryKind::kOpened, MemoryKind::kForeign);  // until it is freed
  std::vector<WaitPoint> points;
  const CUresult marked = waits.MarkContext(shm::kNoContext, &points);
  const CUresult waited = waits.AwaitPoints(&points);
  if (range && range->kind == MemoryKind::kForeign) {
    session.core.foreign.CloseMemory(address);
  } else if (session.core.shared.Drop(shm::SharedKind::kAllocation, address, false)) {
    served.driver().cuMemFree_v2(address);
  }
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
