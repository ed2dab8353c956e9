// Several stream memory operations in one call, on streams and as graph nodes.
#include "proto/shm/records_stream_abi.h"
#include "server/executor/session/graph_target.h"
#include "server/executor/session/operations.h"

namespace tally::server {
namespace {

static_assert(sizeof(CUstreamBatchMemOpParams) == shm::kBatchMemoryOpBytes);

// What the driver keeps for itself in the struct is not the client's to say, nor to see.
void ForgetAlias(CUstreamBatchMemOpParams* op) {
  if (op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
    op->waitValue.alias = 0;
  } else if (op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64) {
    op->writeValue.alias = 0;
  }
}

// Every word must be the session's.
CUresult CheckOne(const ServedRequest& served, const CUstreamBatchMemOpParams& op) {
  const auto check_word = [&](CUdeviceptr address, uint64_t size_bytes) {
    return served.OwnsAddresses(address, size_bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return check_word(op.waitValue.address, 4);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return check_word(op.waitValue.address, 8);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return check_word(op.writeValue.address, 4);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return check_word(op.writeValue.address, 8);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

struct Batch {
  shm::MemoryOperations head{};
  std::vector<CUstreamBatchMemOpParams> operations;

  CUresult Read(ServedRequest& served, WireReader& in) {
    in.TakeStruct(&head);
    if (head.num_operations > shm::kMaxBatchMemoryOps) return served.Malformed("too many memory operations");
    operations.resize(head.num_operations);
    for (CUstreamBatchMemOpParams& op : operations) in.TakeStruct(&op);
    if (!in.AtEnd()) return served.Malformed();
    for (CUstreamBatchMemOpParams& op : operations) {
      ForgetAlias(&op);
      if (const CUresult r = CheckOne(served, op); r != CUDA_SUCCESS) return r;
    }
    return CUDA_SUCCESS;
  }
  CUDA_BATCH_MEM_OP_NODE_PARAMS NodeParameters(CUcontext context) {
    return {context, head.num_operations, operations.data(), head.flags};
  }
};

}  // namespace

CUresult ServeMemoryOperations(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  Batch batch;
  if (const CUresult r = batch.Read(served, in); r != CUDA_SUCCESS) return r;
  if (served.driver().cuStreamBatchMemOp_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUstream stream = nullptr;
  if (const CUresult r = names.ResolveStream(batch.head.stream, StreamUse::kOrdered, &stream); r != CUDA_SUCCESS) {
    return r;
  }
  return served.driver().cuStreamBatchMemOp_v2(stream, batch.head.num_operations, batch.operations.data(),
                                               batch.head.flags);
}

CUresult ServeAddMemoryOperationsNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  GraphTarget target;
  if (const CUresult r = ReadAddTarget(served, names, in, &target); r != CUDA_SUCCESS) return r;
  Batch batch;
  if (const CUresult r = batch.Read(served, in); r != CUDA_SUCCESS) return r;
  if (served.driver().cuGraphAddBatchMemOpNode == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUcontext context = nullptr;
  if (const CUresult r = NodeContext(served, &context); r != CUDA_SUCCESS) return r;
  const CUDA_BATCH_MEM_OP_NODE_PARAMS parameters = batch.NodeParameters(context);
  CUgraphNode node = nullptr;
  const CUresult result = served.driver().cuGraphAddBatchMemOpNode(&node, target.graph, target.dependency_pointer(),
                                                                   target.dependencies.size(), &parameters);
  return PutNode(names, result, node, out);
}

CUresult ServeSetMemoryOperationsNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  GraphTarget target;
  if (const CUresult r = ReadSetTarget(served, names, in, &target); r != CUDA_SUCCESS) return r;
  Batch batch;
  if (const CUresult r = batch.Read(served, in); r != CUDA_SUCCESS) return r;
  CUcontext context = nullptr;
  if (const CUresult r = NodeContext(served, &context); r != CUDA_SUCCESS) return r;
  const CUDA_BATCH_MEM_OP_NODE_PARAMS parameters = batch.NodeParameters(context);
  const DriverTable& driver = served.driver();
  if (target.exec != nullptr) {
    if (driver.cuGraphExecBatchMemOpNodeSetParams == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    return driver.cuGraphExecBatchMemOpNodeSetParams(target.exec, target.node, &parameters);
  }
  if (driver.cuGraphBatchMemOpNodeSetParams == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return driver.cuGraphBatchMemOpNodeSetParams(target.node, &parameters);
}

CUresult ServeGetMemoryOperationsNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  CUgraphNode node = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraphNode, handle, &node); r != CUDA_SUCCESS) return r;
  if (served.driver().cuGraphBatchMemOpNodeGetParams == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUDA_BATCH_MEM_OP_NODE_PARAMS p{};
  if (const CUresult r = served.driver().cuGraphBatchMemOpNodeGetParams(node, &p); r != CUDA_SUCCESS) return r;
  out.PutStruct(shm::MemoryOperations{0, p.count, p.flags});
  for (unsigned int i = 0; i < p.count; ++i) {
    CUstreamBatchMemOpParams op = p.paramArray[i];
    ForgetAlias(&op);
    out.PutStruct(op);
  }
  return CUDA_SUCCESS;
}

}  // namespace tally::server
