// CUDA manual: several stream memory operations in one call, on a stream or as a graph node.
#include <cstring>

#include "client-shim/entry/graph_record.h"
#include "client-shim/entry/guard.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"
#include "proto/shm/records_stream_abi.h"

namespace tally::client_shim {
namespace {

static_assert(sizeof(CUstreamBatchMemOpParams) == shm::kBatchMemoryOpBytes);

CUresult CheckOperations(const Process& process, const CUstreamBatchMemOpParams* operations, unsigned int count) {
  if (count > shm::kMaxBatchMemoryOps || (count != 0 && operations == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    uint64_t size = 0;
    switch (operations[i].operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        size = 4;
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        size = 8;
        break;
      case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      case CU_STREAM_MEM_OP_BARRIER:
        continue;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    // Waits and writes have their address at the same place.
    if (!process.addresses.Covers(operations[i].waitValue.address, size)) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

size_t TailBytes(unsigned int count) {
  return sizeof(shm::MemoryOperations) + size_t{count} * shm::kBatchMemoryOpBytes;
}
void WriteTail(uint64_t stream, const CUstreamBatchMemOpParams* operations, unsigned int count, unsigned int flags,
               std::byte* out) {
  const shm::MemoryOperations head{stream, count, flags};
  std::memcpy(out, &head, sizeof(head));
  if (count != 0) std::memcpy(out + sizeof(head), operations, size_t{count} * shm::kBatchMemoryOpBytes);
}

}  // namespace

CUresult AddMemoryOperationsNode(const NodePlace& place, const CUDA_BATCH_MEM_OP_NODE_PARAMS& p) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckPlace(place); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckOperations(*call.process, p.paramArray, p.count); result != CUDA_SUCCESS)
    return result;
  std::byte* tail = nullptr;
  if (const CUresult result = BeginAdd(call, shm::Op::kAddMemoryOperationsNode, place, TailBytes(p.count), &tail);
      result != CUDA_SUCCESS)
    return result;
  WriteTail(0, p.paramArray, p.count, p.flags, tail);
  return FinishAdd(call, place);
}

CUresult SetMemoryOperationsNode(CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS& p) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckOperations(*call.process, p.paramArray, p.count); result != CUDA_SUCCESS)
    return result;
  std::byte* tail = nullptr;
  if (const CUresult result = BeginSet(call, shm::Op::kSetMemoryOperationsNode, exec, node, TailBytes(p.count), &tail);
      result != CUDA_SUCCESS)
    return result;
  WriteTail(0, p.paramArray, p.count, p.flags, tail);
  return call.channel->Call().result;
}

namespace entry {

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
                               unsigned int flags) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckOperations(*call.process, paramArray, count); result != CUDA_SUCCESS) return result;
  uint64_t word = 0;
  if (const CUresult result = ResolveStreamForWork(*call.process, stream, &word); result != CUDA_SUCCESS) return result;
  std::byte* room = call.channel->Begin(shm::Op::kMemoryOperations, static_cast<uint32_t>(TailBytes(count)));
  if (room == nullptr) return call.channel->failure();
  WriteTail(word, paramArray, count, flags, room);
  call.channel->Post();
  return CUDA_SUCCESS;
}
CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
                            unsigned int flags) {
  return entry::cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                  size_t numDependencies, const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddMemoryOperationsNode({phGraphNode, hGraph, dependencies, numDependencies}, *nodeParams);
}
CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : SetMemoryOperationsNode(nullptr, hNode, *nodeParams);
}
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr || hGraphExec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetMemoryOperationsNode(hGraphExec, hNode, *nodeParams);
}
CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode, CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (nodeParams_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Reply reply = call.channel->CallStruct(shm::Op::kGetMemoryOperationsNode, Word(hNode));
  if (reply.result != CUDA_SUCCESS) return reply.result;
  const auto head = reply.Read<shm::MemoryOperations>();
  const size_t size = size_t{head.num_operations} * shm::kBatchMemoryOpBytes;
  if (reply.payload_bytes < sizeof(head) + size) return CUDA_ERROR_UNKNOWN;
  KernelNodeStorage* storage = call.process->node_parameters.NewKernelStorage(Word(hNode));
  storage->bytes.assign(reply.payload + sizeof(head), reply.payload + sizeof(head) + size);
  *nodeParams_out = {call.process->contexts.Handle(t_thread.context), head.num_operations,
                     reinterpret_cast<CUstreamBatchMemOpParams*>(storage->bytes.data()), head.flags};
  return CUDA_SUCCESS;
}

}  // namespace entry
}  // namespace tally::client_shim
