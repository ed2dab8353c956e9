// Memory nodes: allocations that a graph makes for itself, built by hand. (Captured ones: memory_ops.cc.)
#include "server/executor/session/graph_target.h"
#include "server/executor/session/operations.h"

namespace tally::server {

CUresult ServeAddAllocationNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  GraphTarget target;
  if (const CUresult r = ReadAddTarget(served, names, in, &target); r != CUDA_SUCCESS) return r;
  shm::AllocationNode request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  SessionState& session = served.session();
  Devices& devices = *session.core.devices;
  if (!session.gpus.Has(request.device)) return served.Malformed();
  const DriverTable& driver = served.driver();
  if (driver.cuGraphAddMemAllocNode == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  auto charge = session.TakeCharge(static_cast<int>(request.device), request.size_bytes);
  if (!charge) return CUDA_ERROR_OUT_OF_MEMORY;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  parameters.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, devices.device(static_cast<int>(request.device))};
  parameters.bytesize = request.size_bytes;
  // Other devices that may use it, one bit each.
  std::vector<CUmemAccessDesc> access;
  for (int ordinal = 0; ordinal < devices.count(); ++ordinal) {
    if ((request.readers >> ordinal & 1) == 0 || !session.gpus.Has(static_cast<uint64_t>(ordinal))) continue;
    const bool may_write = (request.writers >> ordinal & 1) != 0;
    access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, devices.device(ordinal)},
                      may_write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ});
  }
  parameters.accessDescs = access.empty() ? nullptr : access.data();
  parameters.accessDescCount = access.size();
  CUgraphNode node = nullptr;
  if (const CUresult r = driver.cuGraphAddMemAllocNode(&node, target.graph, target.dependency_pointer(),
                                                       target.dependencies.size(), &parameters);
      r != CUDA_SUCCESS) {
    return r;
  }
  // A memory node cannot be taken out again: one at addresses that are taken stays, and the client cannot use it.
  if (!session.graphs.memory.Add(target.graph, parameters.dptr, request.size_bytes, served.context_index(),
                                 std::move(*charge))) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  out.PutHandle(names, shm::HandleKind::kGraphNode, node);
  out.PutWord(parameters.dptr);
  return CUDA_SUCCESS;
}

CUresult ServeGetAllocationNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  CUgraphNode node = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraphNode, handle, &node); r != CUDA_SUCCESS) return r;
  if (served.driver().cuGraphMemAllocNodeGetParams == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUDA_MEM_ALLOC_NODE_PARAMS p{};
  if (const CUresult r = served.driver().cuGraphMemAllocNodeGetParams(node, &p); r != CUDA_SUCCESS) return r;
  const Devices& devices = *served.session().core.devices;
  shm::AllocationNode description{};
  description.size_bytes = p.bytesize;
  for (int ordinal = 0; ordinal < devices.count(); ++ordinal) {
    if (devices.device(ordinal) == p.poolProps.location.id) description.device = static_cast<uint32_t>(ordinal);
    for (size_t i = 0; i < p.accessDescCount; ++i) {
      if (p.accessDescs[i].location.id != devices.device(ordinal)) continue;
      if (p.accessDescs[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) description.readers |= uint64_t{1} << ordinal;
      if (p.accessDescs[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) description.writers |= uint64_t{1} << ordinal;
    }
  }
  out.PutStruct(description);
  out.PutWord(p.dptr);
  return CUDA_SUCCESS;
}

CUresult ServeAddFreeNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  // graph, the dependencies, their number, the address
  const uint64_t graph_handle = in.TakeWord();
  std::vector<uint64_t> handles;
  in.TakeArray(&handles);
  in.TakeWord();
  const uint64_t address = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  if (served.driver().cuGraphAddMemFreeNode == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraph graph = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraph, graph_handle, &graph); r != CUDA_SUCCESS) return r;
  std::vector<CUgraphNode> dependencies;
  if (const CUresult r = names.FindAll(shm::HandleKind::kGraphNode, handles, &dependencies); r != CUDA_SUCCESS) {
    return r;
  }
  if (!served.OwnsAddresses(address, 1)) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode node = nullptr;
  if (const CUresult r =
          served.driver().cuGraphAddMemFreeNode(&node, graph, dependencies.data(), dependencies.size(), address);
      r != CUDA_SUCCESS) {
    return r;
  }
  served.session().graphs.memory.OnFreed(graph, address);
  out.PutHandle(names, shm::HandleKind::kGraphNode, node);
  return CUDA_SUCCESS;
}

}  // namespace tally::server
