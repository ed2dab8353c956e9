// CUDA manual: memory nodes of graphs, and conditional nodes, whose bodies are graphs that the node owns.
#include <cstring>

#include "client-shim/entry/graph_record.h"
#include "client-shim/entry/guard.h"
#include "client-shim/state/process.h"
#include "client-shim/state/refusals.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim {
namespace {

CUresult Describe(const Process& process, const CUDA_MEM_ALLOC_NODE_PARAMS& p, shm::AllocationNode* node) {
  *node = {};
  if (p.poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || p.bytesize == 0 ||
      (p.accessDescCount != 0 && p.accessDescs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  if (p.poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;  // as natively
  if (p.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return RefuseUse("cuGraphAddMemAllocNode: memory of the host");
  if (!process.IsDevice(p.poolProps.location.id)) return CUDA_ERROR_INVALID_DEVICE;
  node->size_bytes = p.bytesize;
  node->device = static_cast<uint32_t>(process.server_ordinal(p.poolProps.location.id));
  for (size_t i = 0; i < p.accessDescCount; ++i) {
    const CUmemAccessDesc& access = p.accessDescs[i];
    if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE || !process.IsDevice(access.location.id))
      return CUDA_ERROR_INVALID_VALUE;
    const uint64_t bit = uint64_t{1} << process.server_ordinal(access.location.id);
    if (access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) node->readers |= bit;
    if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) node->writers |= bit;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult AddAllocationNode(const NodePlace& place, CUDA_MEM_ALLOC_NODE_PARAMS* p) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckPlace(place); result != CUDA_SUCCESS) return result;
  shm::AllocationNode node;
  if (const CUresult result = Describe(*call.process, *p, &node); result != CUDA_SUCCESS) return result;
  std::byte* tail = nullptr;
  if (const CUresult result = BeginAdd(call, shm::Op::kAddAllocationNode, place, sizeof(node), &tail);
      result != CUDA_SUCCESS)
    return result;
  std::memcpy(tail, &node, sizeof(node));
  const Reply reply = call.channel->Call();
  if (reply.result != CUDA_SUCCESS) return reply.result;
  Allocation allocation;
  allocation.address = reply.Read<uint64_t>(8);
  allocation.size_bytes = p->bytesize;
  allocation.device = p->poolProps.location.id;
  allocation.context = t_thread.context;
  allocation.is_graph_memory = true;
  // The node cannot be taken out again: at addresses that something else has here, it is of no use.
  if (!call.process->reservations.Hold(allocation.address, allocation.size_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  allocation.reserved_bytes = allocation.size_bytes;
  call.process->addresses.Insert(allocation);
  *place.node = reinterpret_cast<CUgraphNode>(reply.Read<uint64_t>());
  p->dptr = allocation.address;
  return CUDA_SUCCESS;
}

CUresult AddConditionalNode(const NodePlace& place, CUDA_CONDITIONAL_NODE_PARAMS* p) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckPlace(place); result != CUDA_SUCCESS) return result;
  if (p->size == 0 || p->size > shm::kMaxConditionalBodies) return CUDA_ERROR_INVALID_VALUE;
  const shm::ConditionalNode node{p->handle, static_cast<uint32_t>(p->type), p->size};
  std::byte* tail = nullptr;
  if (const CUresult result = BeginAdd(call, shm::Op::kAddConditionalNode, place, sizeof(node), &tail);
      result != CUDA_SUCCESS)
    return result;
  std::memcpy(tail, &node, sizeof(node));
  const Reply reply = call.channel->Call();
  if (reply.result != CUDA_SUCCESS) return reply.result;
  if (reply.payload_bytes < 8 + size_t{p->size} * 8) return CUDA_ERROR_UNKNOWN;
  *place.node = reinterpret_cast<CUgraphNode>(reply.Read<uint64_t>());
  KernelNodeStorage* storage = call.process->node_parameters.NewKernelStorage(Word(*place.node));
  storage->bytes.assign(reply.payload + 8, reply.payload + 8 + size_t{p->size} * 8);
  p->phGraph_out = reinterpret_cast<CUgraph*>(storage->bytes.data());
  return CUDA_SUCCESS;
}

namespace entry {

CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddAllocationNode({phGraphNode, hGraph, dependencies, numDependencies}, nodeParams);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (params_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Reply reply = call.channel->CallStruct(shm::Op::kGetAllocationNode, Word(hNode));
  if (reply.result != CUDA_SUCCESS) return reply.result;
  const auto node = reply.Read<shm::AllocationNode>();
  const auto address = reply.Read<uint64_t>(sizeof(node));
  *params_out = {};
  params_out->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params_out->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params_out->bytesize = node.size_bytes;
  params_out->dptr = address;
  KernelNodeStorage* storage = call.process->node_parameters.NewKernelStorage(Word(hNode));
  for (CUdevice device = 0; device < call.process->num_devices(); ++device) {
    const auto ordinal = static_cast<uint32_t>(call.process->server_ordinal(device));
    if (ordinal == node.device) params_out->poolProps.location.id = device;
    if ((node.readers >> ordinal & 1) == 0) continue;
    const bool may_write = (node.writers >> ordinal & 1) != 0;
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device},
                                 may_write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ};
    const auto* bytes = reinterpret_cast<const std::byte*>(&access);
    storage->bytes.insert(storage->bytes.end(), bytes, bytes + sizeof(access));
    ++params_out->accessDescCount;
  }
  if (params_out->accessDescCount != 0)
    params_out->accessDescs = reinterpret_cast<const CUmemAccessDesc*>(storage->bytes.data());
  return CUDA_SUCCESS;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph, CUcontext,
                                        unsigned int defaultLaunchValue, unsigned int flags) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (pHandle_out == nullptr || hGraph == nullptr ||
      (flags & ~static_cast<unsigned>(CU_GRAPH_COND_ASSIGN_DEFAULT)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const Reply reply = call.channel->CallStruct(shm::Op::kCreateConditional,
                                               shm::CreateConditional{Word(hGraph), defaultLaunchValue, flags});
  if (reply.result == CUDA_SUCCESS) *pHandle_out = reply.Read<uint64_t>();
  return reply.result;
}

}  // namespace entry
}  // namespace tally::client_shim
