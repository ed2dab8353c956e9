// Which node of which graph an operation adds or changes: the GraphNodeTarget that such a record begins with, resolved.
#pragma once

#include <cuda.h>

#include <optional>
#include <vector>

#include "proto/shm/records_graph_abi.h"
#include "proto/shm/records_launch_abi.h"
#include "server/executor/issue/transfer.h"
#include "server/executor/session/operations.h"

namespace tally::server {

struct GraphTarget {
  shm::GraphNodeTarget head{};
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
  std::vector<CUgraphNode> dependencies;
  const CUgraphNode* dependency_pointer() const { return dependencies.empty() ? nullptr : dependencies.data(); }
};

// For a new node: graph and dependencies.
inline CUresult ReadAddTarget(ServedRequest& served, ClientNames& names, WireReader& in, GraphTarget* target) {
  in.TakeStruct(&target->head);
  if (target->head.num_dependencies > in.remaining() / sizeof(uint64_t)) return served.Malformed();
  std::vector<uint64_t> handles(target->head.num_dependencies);
  for (uint64_t& handle : handles) handle = in.TakeWord();
  if (const CUresult r = names.Find(shm::HandleKind::kGraph, target->head.graph, &target->graph); r != CUDA_SUCCESS) {
    return r;
  }
  return names.FindAll(shm::HandleKind::kGraphNode, handles, &target->dependencies);
}

// For a change: node, and executable if it is there that the node is to change.
inline CUresult ReadSetTarget(ServedRequest& served, ClientNames& names, WireReader& in, GraphTarget* target) {
  in.TakeStruct(&target->head);
  if (const CUresult r = names.FindOptional(shm::HandleKind::kGraphExec, target->head.exec, &target->exec);
      r != CUDA_SUCCESS) {
    return r;
  }
  if (target->exec != nullptr) served.session().graphs.OnExecNodeSet(target->exec);
  return names.Find(shm::HandleKind::kGraphNode, target->head.node, &target->node);
}

// A kernel node as the record of a launch, without its attributes, and its parameters.
CUresult ReadKernelNode(ServedRequest& served, CUgraphNode node, shm::Launch* launch, std::vector<std::byte>* packed);

// What a copy or fill node does. Nothing: it is a node of another kind, or not one that a window would hold.
std::optional<Transfer> TransferIn(const DriverTable& driver, CUgraphNode node);
// A kernel node as a launch that nobody makes, so that it can be asked what it touches. False: it cannot be read.
bool ReadAsLaunch(ServedRequest& served, Stream& stream, CUgraphNode node, PendingLaunch* launch);
// Attributes of a kernel node that a launch by itself needs; others mean nothing for how it runs, but for hints. False:
// it cannot be launched by itself.
bool ReadLaunchAttributes(const DriverTable& driver, CUgraphNode node, std::vector<CUlaunchAttribute>* attributes);

// Launches an executable on a stream that is sealed and not being captured: itself, or its twin.
CUresult LaunchExec(ServedRequest& served, Stream& stream, CUgraphExec exec);

inline CUresult PutNode(ClientNames& names, CUresult result, CUgraphNode node, WireWriter& out) {
  if (result == CUDA_SUCCESS) out.PutHandle(names, shm::HandleKind::kGraphNode, node);
  return result;
}

// The real context that nodes of the request run in.
inline CUresult NodeContext(ServedRequest& served, CUcontext* context) {
  if (served.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return served.session().core.devices->Context(served.context()->device(), context);
}

}  // namespace tally::server
