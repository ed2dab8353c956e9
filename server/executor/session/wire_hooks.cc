// What has to happen around some generated calls.
#include "proto/driver/generated/wire_ops.h"
#include "server/executor/session/graph_target.h"
#include "server/executor/session/kernel_ops.h"
#include "server/executor/session/launch_record.h"
#include "server/executor/session/operations.h"
#include "server/executor/session/pools.h"
#include "server/executor/session/texture_ops.h"

namespace tally::server {
namespace {

// The event in an attribute's value, if it has one.
CUevent* EventIn(uint64_t attribute, CUlaunchAttributeValue* value) {
  if (attribute == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) return &value->programmaticEvent.event;
  if (attribute == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) return &value->launchCompletionEvent.event;
  return nullptr;
}

CUresult SetNodeAttribute(ServedRequest& served, ClientNames& names, WireReader& in) {
  const uint64_t handle = in.TakeWord();
  const auto attribute = static_cast<CUlaunchAttributeID>(in.TakeWord());
  CUlaunchAttributeValue value{};
  in.TakeStruct(&value);
  if (!in.AtEnd()) return served.Malformed();
  if (!IsKnownAttribute(attribute) || served.driver().cuGraphKernelNodeSetAttribute == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUgraphNode node = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraphNode, handle, &node); r != CUDA_SUCCESS) return r;
  if (CUevent* event = EventIn(attribute, &value); event != nullptr) {
    const auto name = reinterpret_cast<uint64_t>(*event);
    if (const CUresult r = names.Find(shm::HandleKind::kEvent, name, event); r != CUDA_SUCCESS) return r;
  }
  if (attribute == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) value.deviceUpdatableKernelNode.devNode = nullptr;
  return served.driver().cuGraphKernelNodeSetAttribute(node, attribute, &value);
}

CUresult GetNodeAttribute(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  const uint64_t handle = in.TakeWord();
  const auto attribute = static_cast<CUlaunchAttributeID>(in.TakeWord());
  if (!in.AtEnd()) return served.Malformed();
  if (!IsKnownAttribute(attribute) || served.driver().cuGraphKernelNodeGetAttribute == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUgraphNode node = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraphNode, handle, &node); r != CUDA_SUCCESS) return r;
  CUlaunchAttributeValue value{};
  if (const CUresult r = served.driver().cuGraphKernelNodeGetAttribute(node, attribute, &value); r != CUDA_SUCCESS) {
    return r;
  }
  if (CUevent* event = EventIn(attribute, &value); event != nullptr) {
    *event = reinterpret_cast<CUevent>(served.session().handles(shm::HandleKind::kEvent).FindHandle(*event));
  }
  out.PutStruct(value);
  return CUDA_SUCCESS;
}

CUresult LaunchGraph(ServedRequest& served, ClientNames& names, WireReader& in) {
  const uint64_t exec_handle = in.TakeWord();
  const uint64_t stream_handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  CUgraphExec exec = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraphExec, exec_handle, &exec); r != CUDA_SUCCESS) return r;
  Stream* stream = nullptr;
  if (const CUresult r = names.ResolveStream(stream_handle, StreamUse::kLaunch, &stream); r != CUDA_SUCCESS) return r;
  const CUresult result = served.session().graphs.launches.Launch(served, names, *stream, exec);
  served.session().counters.Add("graph_launches");
  return result;
}

CUresult CreatePool(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  CUmemPoolProps properties{};
  in.TakeStruct(&properties);
  if (!in.AtEnd()) return served.Malformed();
  // What leaves the program is a name of ours (shared_objects.h): the driver need not be able to export it.
  const bool is_exportable = properties.handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (!is_exportable && properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  const int ordinal = properties.location.id;
  properties.win32SecurityAttributes = nullptr;  // a pointer of the client's
  const Devices& devices = *served.session().core.devices;
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (ordinal < 0 || !served.session().gpus.Has(static_cast<uint64_t>(ordinal))) return CUDA_ERROR_INVALID_VALUE;
  properties.location.id = devices.device(properties.location.id);
  CUmemoryPool pool = nullptr;
  if (served.driver().cuMemPoolCreate == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult r = served.driver().cuMemPoolCreate(&pool, &properties); r != CUDA_SUCCESS) return r;
  if (is_exportable) served.session().pools.exportable[pool] = ordinal;
  out.PutHandle(names, shm::HandleKind::kMemPool, pool);
  return CUDA_SUCCESS;
}

bool IsMovedGraph(ServedRequest& served, ClientNames& names, uint64_t handle) {
  CUgraph graph = nullptr;
  return names.Find(shm::HandleKind::kGraph, handle, &graph) == CUDA_SUCCESS &&
         served.session().graphs.nested.IsMoved(graph);
}

bool IsDefaultPool(ServedRequest& served, ClientNames& names, uint64_t handle) {
  CUmemoryPool pool = nullptr;
  if (names.Find(shm::HandleKind::kMemPool, handle, &pool) != CUDA_SUCCESS) return false;
  return served.session().pools.IsDefault(pool);
}

CUresult GetDefaultPool(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  const uint64_t ordinal = in.TakeWord();
  if (!in.AtEnd() || !served.session().gpus.Has(ordinal)) return served.Malformed();
  CUmemoryPool pool = nullptr;
  if (const CUresult r = served.session().pools.Default(static_cast<int>(ordinal), &pool); r != CUDA_SUCCESS) return r;
  out.PutHandle(names, shm::HandleKind::kMemPool, pool);
  return CUDA_SUCCESS;
}

// Every real stream is a non-blocking one: the client's own flags are ours to remember.
CUresult GetStreamFlags(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  Stream* stream = nullptr;
  if (const CUresult r = names.FindStream(handle, &stream); r != CUDA_SUCCESS) return r;
  out.PutStruct(static_cast<unsigned int>(stream->flags));
  return CUDA_SUCCESS;
}

// Its attributes are about to change: graphs have those of their time.
void NoteKernelChanges(ServedRequest& served, uint64_t handle) {
  SessionWindow* const window = served.session().window.get();
  const Kernel* const kernel = window != nullptr ? FindKernel(served.session(), handle) : nullptr;
  if (kernel != nullptr) window->Forget(*kernel);
}

}  // namespace

bool ServeBeforeWire(ServedRequest& served, ClientNames& names, uint16_t op, WireReader in, WireWriter& out,
                     CUresult* result) {
  switch (op) {
    case kOp_cuGraphLaunch:
      *result = LaunchGraph(served, names, in);
      return true;
    case kOp_cuFuncSetAttribute:
    case kOp_cuFuncSetCacheConfig:
      NoteKernelChanges(served, in.TakeWord());
      return false;
    case kOp_cuKernelSetAttribute:  // the attribute, its value, the kernel
      in.TakeWord();
      in.TakeWord();
      NoteKernelChanges(served, in.TakeWord());
      return false;
    case kOp_cuEventDestroy_v2: {
      const uint64_t handle = in.TakeWord();
      CUevent event = nullptr;
      if (!in.AtEnd() || names.Find(shm::HandleKind::kEvent, handle, &event) != CUDA_SUCCESS) return false;
      names.Forget(shm::HandleKind::kEvent, handle);
      *result =
          served.session().opened.LetGoOfEvent(handle, event) ? served.driver().cuEventDestroy_v2(event) : CUDA_SUCCESS;
      return true;
    }
    case kOp_cuGraphAddChildGraphNode: {
      // graph, the dependencies, their number, the child
      in.TakeWord();
      std::vector<uint64_t> dependencies;
      in.TakeArray(&dependencies);
      in.TakeWord();
      *result = CUDA_ERROR_INVALID_VALUE;
      return IsMovedGraph(served, names, in.TakeWord());
    }
    case kOp_cuGraphExecChildGraphNodeSetParams:
      in.TakeWord();
      in.TakeWord();
      *result = CUDA_ERROR_INVALID_VALUE;
      return IsMovedGraph(served, names, in.TakeWord());
    case kOp_cuGraphDestroy:
      *result = ServeDestroyGraph(served, names, in, out);
      return true;
    case kOp_cuGraphDestroyNode:
      *result = ServeDestroyNode(served, names, in, out);
      return true;
    case kOp_cuGraphChildGraphNodeGetGraph:
      *result = ServeGetChildGraph(served, names, in, out);
      return true;
    case kOp_cuGraphAddMemFreeNode:
      *result = ServeAddFreeNode(served, names, in, out);
      return true;
    case kOp_cuGraphExecDestroy: {
      CUgraphExec exec = nullptr;
      if (names.Find(shm::HandleKind::kGraphExec, in.TakeWord(), &exec) == CUDA_SUCCESS) {
        served.session().graphs.OnExecDestroyed(exec);
      }
      return false;
    }
    case kOp_cuGraphNodeSetEnabled: {
      CUgraphExec exec = nullptr;
      if (names.Find(shm::HandleKind::kGraphExec, in.TakeWord(), &exec) == CUDA_SUCCESS) {
        served.session().graphs.OnExecChanged(exec);
      }
      return false;
    }
    case kOp_cuGraphKernelNodeSetAttribute:
      *result = SetNodeAttribute(served, names, in);
      return true;
    case kOp_cuGraphKernelNodeGetAttribute:
      *result = GetNodeAttribute(served, names, in, out);
      return true;
    case kOp_cuStreamSetAttribute: {
      in.TakeWord();
      CUlaunchAttributeValue value{};
      const uint64_t attribute = in.TakeWord();
      if (IsKnownAttribute(static_cast<CUlaunchAttributeID>(attribute)) && EventIn(attribute, &value) == nullptr) {
        return false;
      }
      *result = CUDA_ERROR_INVALID_VALUE;  // not for streams
      return true;
    }
    case kOp_cuMemPoolCreate:
      *result = CreatePool(served, names, in, out);
      return true;
    case kOp_cuMemPoolDestroy: {
      const uint64_t handle = in.TakeWord();
      CUmemoryPool pool = nullptr;
      if (!IsDefaultPool(served, names, handle)) {
        if (names.Find(shm::HandleKind::kMemPool, handle, &pool) == CUDA_SUCCESS) served.session().pools.Forget(pool);
        return false;
      }
      *result = CUDA_ERROR_INVALID_VALUE;  // as natively: the default pool cannot be destroyed
      return true;
    }
    case kOp_cuMemPoolTrimTo:
      served.session().pools.NoteFreed();
      return false;
    case kOp_cuDeviceGetDefaultMemPool:
      *result = GetDefaultPool(served, names, in, out);
      return true;
    case kOp_cuStreamGetFlags:
      *result = GetStreamFlags(served, names, in, out);
      return true;
    default:
      return ServeTexturesBeforeWire(served, names, op, in, out, result);
  }
}

}  // namespace tally::server
