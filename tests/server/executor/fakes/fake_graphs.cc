#include "tests/server/executor/fakes/fake_graphs.h"

#include <fmt/format.h>

#include <algorithm>

namespace tally::fakes {
namespace {

constexpr size_t kWindowBytes = 64 << 20;
constexpr size_t kMaxMemoryBytes = 1 << 16;
constexpr size_t kMaxNodes = 100000;  // as every nesting clones, structures grow fast

FakeGraphs* graphs = nullptr;

template <typename Handle>
Handle As(uint64_t number) {
  return reinterpret_cast<Handle>(number);
}

// Adds a node without anything of its own.
CUresult AddPlain(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                  CUgraphNodeType type) {
  const std::lock_guard lock(graphs->mutex());
  return graphs->AddNode(node, graph, dependencies, count, {graph, type, {}});
}

CUresult CheckNode(CUgraphNode node, CUgraphNodeType type) {
  const FakeGraphs::Node* found = graphs->Find(node);
  if (found == nullptr) return graphs->Misuse("a node that is gone");
  return found->type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CheckInExec(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type) {
  const std::lock_guard lock(graphs->mutex());
  if (graphs->Find(exec) == nullptr) return graphs->Misuse("an executable that is gone");
  return CheckNode(node, type);
}

CUresult AddConditional(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                        CUDA_CONDITIONAL_NODE_PARAMS* p) {
  const auto known = graphs->conditionals.find(p->handle);
  if (known == graphs->conditionals.end() || known->second != graph) return graphs->Misuse("a conditional of nowhere");
  FakeGraphs::Node node{graph, CU_GRAPH_NODE_TYPE_CONDITIONAL, {}};
  for (unsigned i = 0; i < p->size; ++i) {
    node.inner.push_back(graphs->NewGraph());
    graphs->Find(node.inner.back())->belongs_to_node = true;
  }
  graphs->last_bodies = node.inner;
  p->phGraph_out = graphs->last_bodies.data();
  const CUresult result = graphs->AddNode(out, graph, dependencies, count, node);
  if (result != CUDA_SUCCESS) {
    for (const CUgraph body : node.inner) graphs->Destroy(body);
  }
  return result;
}

void FillNodes(server::DriverTable& t) {
  t.cuGraphAddEmptyNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* from, size_t count) -> CUresult {
    return AddPlain(node, graph, from, count, CU_GRAPH_NODE_TYPE_EMPTY);
  };
  t.cuGraphAddKernelNode_v2 = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* from, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS*) -> CUresult {
    return AddPlain(node, graph, from, count, CU_GRAPH_NODE_TYPE_KERNEL);
  };
  t.cuGraphAddMemsetNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* from, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS*, CUcontext) -> CUresult {
    return AddPlain(node, graph, from, count, CU_GRAPH_NODE_TYPE_MEMSET);
  };
  t.cuGraphAddHostNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* from, size_t count,
                            const CUDA_HOST_NODE_PARAMS*) -> CUresult {
    return AddPlain(node, graph, from, count, CU_GRAPH_NODE_TYPE_HOST);
  };
  t.cuGraphAddBatchMemOpNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* from, size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS*) -> CUresult {
    return AddPlain(node, graph, from, count, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  };
  t.cuGraphBatchMemOpNodeSetParams = [](CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS*) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    return CheckNode(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  };
  t.cuGraphExecBatchMemOpNodeSetParams = [](CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS*) -> CUresult {
    return CheckInExec(exec, node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  };
  t.cuGraphAddMemAllocNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* from, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS* p) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    FakeGraphs::Graph* found = graphs->Find(graph);
    if (found != nullptr && found->belongs_to_node) return CUDA_ERROR_NOT_SUPPORTED;
    const CUresult result = graphs->AddNode(node, graph, from, count, {graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, {}});
    if (result != CUDA_SUCCESS) return result;
    p->dptr = graphs->NewMemory(p->bytesize, found);
    return p->dptr != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  };
  t.cuGraphAddMemFreeNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* from, size_t count,
                               CUdeviceptr) -> CUresult {
    return AddPlain(node, graph, from, count, CU_GRAPH_NODE_TYPE_MEM_FREE);
  };
  t.cuGraphAddChildGraphNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* from, size_t count,
                                  CUgraph child) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    const FakeGraphs::Graph* found = graphs->Find(child);
    if (found == nullptr) return graphs->Misuse("a child that is gone");
    if (found->was_moved) return graphs->Misuse("a moved graph as child");
    if (child == graph || graphs->num_nodes() > kMaxNodes) return CUDA_ERROR_INVALID_VALUE;
    const CUgraph clone = graphs->Clone(child);
    graphs->Find(clone)->belongs_to_node = true;
    const CUresult result = graphs->AddNode(node, graph, from, count, {graph, CU_GRAPH_NODE_TYPE_GRAPH, {clone}});
    if (result != CUDA_SUCCESS) graphs->Destroy(clone);
    return result;
  };
  t.cuGraphAddNode_v2 = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* from, const CUgraphEdgeData*,
                           size_t count, CUgraphNodeParams* p) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    if (p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return AddConditional(node, graph, from, count, &p->conditional);
    if (p->type != CU_GRAPH_NODE_TYPE_GRAPH || p->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    return graphs->Move(node, graph, from, count, p->graph.graph);
  };
}

void FillGraphs(server::DriverTable& t) {
  t.cuGraphCreate = [](CUgraph* graph, unsigned) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    return *graph = graphs->NewGraph(), CUDA_SUCCESS;
  };
  t.cuGraphDestroy = [](CUgraph graph) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    const FakeGraphs::Graph* found = graphs->Find(graph);
    if (found == nullptr) return graphs->Misuse("the end of a graph that is gone");
    if (found->belongs_to_node) return graphs->Misuse("the end of a graph that belongs to a node");
    graphs->Destroy(graph);
    return CUDA_SUCCESS;
  };
  t.cuGraphClone = [](CUgraph* clone, CUgraph graph) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    if (graphs->Find(graph) == nullptr) return graphs->Misuse("a clone of a graph that is gone");
    return *clone = graphs->Clone(graph), CUDA_SUCCESS;
  };
  t.cuGraphGetNodes = [](CUgraph graph, CUgraphNode* nodes, size_t* count) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    const FakeGraphs::Graph* found = graphs->Find(graph);
    if (found == nullptr) return graphs->Misuse("the nodes of a graph that is gone");
    const size_t room = nodes != nullptr ? std::min(*count, found->nodes.size()) : 0;
    std::copy_n(found->nodes.begin(), room, nodes);
    return *count = found->nodes.size(), CUDA_SUCCESS;
  };
  t.cuGraphNodeGetType = [](CUgraphNode node, CUgraphNodeType* type) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    const FakeGraphs::Node* found = graphs->Find(node);
    if (found == nullptr) return graphs->Misuse("the kind of a node that is gone");
    return *type = found->type, CUDA_SUCCESS;
  };
  t.cuGraphDestroyNode = [](CUgraphNode node) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    const FakeGraphs::Node* found = graphs->Find(node);
    if (found == nullptr) return graphs->Misuse("the end of a node that is gone");
    if (found->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || found->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (graphs->Find(found->graph)->num_captures != 0) return graphs->Misuse("the end of a node in a capture");
    graphs->DestroyNode(node);
    return CUDA_SUCCESS;
  };
  t.cuGraphChildGraphNodeGetGraph = [](CUgraphNode node, CUgraph* graph) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    if (const CUresult r = CheckNode(node, CU_GRAPH_NODE_TYPE_GRAPH); r != CUDA_SUCCESS) return r;
    return *graph = graphs->Find(node)->inner[0], CUDA_SUCCESS;
  };
  t.cuGraphConditionalHandleCreate = [](CUgraphConditionalHandle* conditional, CUgraph graph, CUcontext, unsigned,
                                        unsigned) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    if (graphs->Find(graph) == nullptr) return graphs->Misuse("a conditional in a graph that is gone");
    *conditional = graphs->conditionals.size() + 1;
    return graphs->conditionals[*conditional] = graph, CUDA_SUCCESS;
  };
  t.cuGraphAddDependencies_v2 = [](CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData*, size_t count) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    if (graphs->Find(graph) == nullptr) return graphs->Misuse("edges in a graph that is gone");
    for (size_t i = 0; i < count; ++i) {
      const FakeGraphs::Node* first = graphs->Find(from[i]);
      const FakeGraphs::Node* second = graphs->Find(to[i]);
      if (first == nullptr || second == nullptr) return graphs->Misuse("an edge of a node that is gone");
      if (first->graph != graph || second->graph != graph || first == second) return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  };
}

void FillExecs(server::DriverTable& t) {
  t.cuGraphInstantiateWithParams = [](CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* p) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    const FakeGraphs::Graph* found = graphs->Find(graph);
    if (found == nullptr) return graphs->Misuse("an executable of a graph that is gone");
    if (found->was_moved) return graphs->Misuse("an executable of a moved graph");
    p->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    p->hErrNode_out = nullptr;
    return *exec = graphs->NewExec(graph), CUDA_SUCCESS;
  };
  t.cuGraphExecDestroy = [](CUgraphExec exec) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    if (graphs->execs.erase(exec) == 0) return graphs->Misuse("the end of an executable that is gone");
    return CUDA_SUCCESS;
  };
  t.cuGraphExecUpdate_v2 = [](CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* result) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    const FakeGraphs::Graph* found = graphs->Find(graph);
    if (graphs->Find(exec) == nullptr || found == nullptr) return graphs->Misuse("an update with what is gone");
    if (found->was_moved) return graphs->Misuse("an update with a moved graph");
    *result = {};
    result->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    result->errorNode = found->nodes.empty() ? nullptr : found->nodes.back();
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  };
  t.cuGraphExecChildGraphNodeSetParams = [](CUgraphExec exec, CUgraphNode node, CUgraph graph) -> CUresult {
    {
      const std::lock_guard lock(graphs->mutex());
      const FakeGraphs::Graph* found = graphs->Find(graph);
      if (found == nullptr) return graphs->Misuse("an update with what is gone");
      if (found->was_moved) return graphs->Misuse("an update with a moved graph");
    }
    return CheckInExec(exec, node, CU_GRAPH_NODE_TYPE_GRAPH);
  };
  t.cuGraphLaunch = [](CUgraphExec exec, CUstream) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    return graphs->Find(exec) != nullptr ? CUDA_SUCCESS : graphs->Misuse("a launch of what is gone");
  };
}

void FillUserObjects(server::DriverTable& t) {
  t.cuUserObjectCreate = [](CUuserObject* object, void* argument, CUhostFn destroy, unsigned count,
                            unsigned) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    static uint64_t number = 0x700000000000;
    *object = As<CUuserObject>(number += 16);
    graphs->user_objects[*object] = {destroy, argument, count};
    return CUDA_SUCCESS;
  };
  t.cuUserObjectRetain = [](CUuserObject object, unsigned count) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    FakeGraphs::UserObject* found = graphs->Find(object);
    if (found == nullptr) return graphs->Misuse("a user object that is gone");
    found->num_references += count;
    if (found->num_references > INT32_MAX) return graphs->Misuse("more references than a driver counts");
    return CUDA_SUCCESS;
  };
  t.cuUserObjectRelease = [](CUuserObject object, unsigned count) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    return graphs->Release(object, count), CUDA_SUCCESS;
  };
  t.cuGraphRetainUserObject = [](CUgraph graph, CUuserObject object, unsigned count, unsigned flags) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    FakeGraphs::Graph* holder = graphs->Find(graph);
    FakeGraphs::UserObject* found = graphs->Find(object);
    if (holder == nullptr || found == nullptr) return graphs->Misuse("a reference of what is gone");
    if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) found->num_references += count;
    holder->references[object] += count;
    return CUDA_SUCCESS;
  };
  t.cuGraphReleaseUserObject = [](CUgraph graph, CUuserObject object, unsigned count) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    FakeGraphs::Graph* holder = graphs->Find(graph);
    if (holder == nullptr) return graphs->Misuse("a reference of what is gone");
    if (holder->references[object] < count) return graphs->Misuse("a reference that the graph never had");
    if ((holder->references[object] -= count) == 0) holder->references.erase(object);
    return graphs->Release(object, count), CUDA_SUCCESS;
  };
}

void FillCaptures(server::DriverTable& t) {
  static const auto begin = [](CUstream stream, CUgraph graph) {
    if (graphs->captures.contains(stream)) return CUDA_ERROR_ILLEGAL_STATE;
    if (graph == nullptr) graph = graphs->NewGraph();
    graphs->captures[stream] = graph;
    ++graphs->Find(graph)->num_captures;
    return CUDA_SUCCESS;
  };
  t.cuStreamBeginCapture_v2 = [](CUstream stream, CUstreamCaptureMode) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    return begin(stream, nullptr);
  };
  t.cuStreamBeginCaptureToGraph = [](CUstream stream, CUgraph graph, const CUgraphNode* from, const CUgraphEdgeData*,
                                     size_t count, CUstreamCaptureMode) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    if (graphs->Find(graph) == nullptr) return graphs->Misuse("a capture into a graph that is gone");
    for (size_t i = 0; i < count; ++i) {
      const FakeGraphs::Node* node = graphs->Find(from[i]);
      if (node == nullptr) return graphs->Misuse("a capture behind a node that is gone");
      if (node->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    }
    return begin(stream, graph);
  };
  t.cuStreamEndCapture = [](CUstream stream, CUgraph* graph) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    const auto capture = graphs->captures.extract(stream);
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    *graph = capture.mapped();
    if (graphs->Find(*graph) == nullptr) return graphs->Misuse("the end of a capture into a graph that is gone");
    --graphs->Find(*graph)->num_captures;
    return CUDA_SUCCESS;
  };
  t.cuStreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* status) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    const bool is_capturing = graphs->captures.contains(stream);
    return *status = is_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
  };
  t.cuStreamGetCaptureInfo_v3 = [](CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** nodes, const CUgraphEdgeData** edges,
                                   size_t* count) -> CUresult {
    const std::lock_guard lock(graphs->mutex());
    const auto capture = graphs->captures.find(stream);
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (capture == graphs->captures.end()) return CUDA_SUCCESS;
    if (graphs->Find(capture->second) == nullptr) return graphs->Misuse("a capture into a graph that is gone");
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (id != nullptr) *id = 1;
    if (graph != nullptr) *graph = capture->second;
    const std::vector<CUgraphNode>& all = graphs->Find(capture->second)->nodes;
    if (nodes != nullptr) *nodes = all.data();
    if (edges != nullptr) *edges = nullptr;
    if (count != nullptr) *count = std::min<size_t>(all.size(), 1);
    return CUDA_SUCCESS;
  };
}

}  // namespace

FakeGraphs::FakeGraphs(server::DriverTable& table) : window_(new std::byte[kWindowBytes]) {
  graphs = this;
  FillGraphs(table);
  FillNodes(table);
  FillExecs(table);
  FillUserObjects(table);
  FillCaptures(table);
}

FakeGraphs::~FakeGraphs() { graphs = nullptr; }

std::map<std::string, int> FakeGraphs::live() const {
  std::map<std::string, int> result;
  const auto add = [&](const char* kind, size_t count) {
    if (count != 0) result[kind] = static_cast<int>(count);
  };
  add("graph", graphs_.size());
  add("graph node", nodes_.size());
  add("graph exec", execs.size());
  add("graph memory", static_cast<size_t>(*num_memory_));
  add("user object", user_objects.size());
  return result;
}

std::vector<std::string> FakeGraphs::misuses() const {
  const std::lock_guard lock(mutex_);
  return misuses_;
}

CUresult FakeGraphs::Misuse(const std::string& what) {
  misuses_.push_back(what);
  return CUDA_ERROR_INVALID_HANDLE;
}

template <typename Map, typename Handle>
auto* Find(Map& map, Handle handle) {
  const auto found = map.find(handle);
  return found != map.end() ? &found->second : nullptr;
}
FakeGraphs::Graph* FakeGraphs::Find(CUgraph graph) { return fakes::Find(graphs_, graph); }
FakeGraphs::Node* FakeGraphs::Find(CUgraphNode node) { return fakes::Find(nodes_, node); }
FakeGraphs::Exec* FakeGraphs::Find(CUgraphExec exec) { return fakes::Find(execs, exec); }
FakeGraphs::UserObject* FakeGraphs::Find(CUuserObject object) { return fakes::Find(user_objects, object); }

CUgraph FakeGraphs::NewGraph() {
  const auto graph = As<CUgraph>(NextNumber());
  graphs_[graph] = {};
  return graph;
}

CUgraphExec FakeGraphs::NewExec(CUgraph graph) {
  const auto exec = As<CUgraphExec>(NextNumber());
  std::vector<CUgraph> open{graph};
  while (!open.empty()) {
    const Graph& found = graphs_.at(open.back());
    open.pop_back();
    execs[exec].memory.insert(execs[exec].memory.end(), found.memory.begin(), found.memory.end());
    for (const CUgraphNode node : found.nodes) {
      open.insert(open.end(), nodes_.at(node).inner.begin(), nodes_.at(node).inner.end());
    }
  }
  return exec;
}

CUresult FakeGraphs::AddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                             Node node) {
  Graph* found = Find(graph);
  if (found == nullptr) return Misuse("a node in a graph that is gone");
  for (size_t i = 0; i < count; ++i) {
    const Node* dependency = Find(dependencies[i]);
    if (dependency == nullptr) return Misuse("a dependency that is gone");
    if (dependency->graph != graph) return CUDA_ERROR_INVALID_VALUE;
  }
  *out = As<CUgraphNode>(NextNumber());
  nodes_[*out] = std::move(node);
  found->nodes.push_back(*out);
  return CUDA_SUCCESS;
}

void FakeGraphs::Destroy(CUgraph graph) {
  std::vector<CUgraph> open{graph};
  while (!open.empty()) {
    const Graph found = std::move(graphs_.at(open.back()));
    graphs_.erase(open.back());
    open.pop_back();
    if (found.num_captures != 0) Misuse("the end of a graph in a capture");
    for (const auto& [object, count] : found.references) Release(object, count);
    for (const CUgraphNode node : found.nodes) {
      open.insert(open.end(), nodes_.at(node).inner.begin(), nodes_.at(node).inner.end());
      nodes_.erase(node);
    }
  }
}

void FakeGraphs::DestroyNode(CUgraphNode node) {
  const Node found = nodes_.at(node);
  for (const CUgraph inner : found.inner) Destroy(inner);
  std::erase(graphs_.at(found.graph).nodes, node);
  nodes_.erase(node);
}

bool FakeGraphs::Holds(CUgraph graph, CUgraph wanted) {
  std::vector<CUgraph> open{graph};
  while (!open.empty()) {
    const CUgraph one = open.back();
    open.pop_back();
    if (one == wanted) return true;
    for (const CUgraphNode node : graphs_.at(one).nodes) {
      open.insert(open.end(), nodes_.at(node).inner.begin(), nodes_.at(node).inner.end());
    }
  }
  return false;
}

CUgraph FakeGraphs::Clone(CUgraph graph) {
  const CUgraph result = NewGraph();
  // Pairs of a graph and its clone; without recursion, as tests nest deep.
  std::vector<std::pair<CUgraph, CUgraph>> open{{graph, result}};
  while (!open.empty()) {
    const auto [from, to] = open.back();
    open.pop_back();
    for (const CUgraphNode node : std::vector(graphs_.at(from).nodes)) {
      Node copy = nodes_.at(node);
      copy.graph = to;
      for (CUgraph& inner : copy.inner) {
        const CUgraph clone = NewGraph();
        graphs_.at(clone).belongs_to_node = true;
        open.emplace_back(inner, clone);
        inner = clone;
      }
      CUgraphNode added = nullptr;
      AddNode(&added, to, nullptr, 0, std::move(copy));
    }
    graphs_.at(to).memory = graphs_.at(from).memory;
  }
  return result;
}

CUresult FakeGraphs::Move(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                          CUgraph child) {
  Graph* found = Find(child);
  if (found == nullptr) return Misuse("a move of a graph that is gone");
  if (found->belongs_to_node) return Misuse("a move of a graph that belongs to a node");
  if (found->num_captures != 0) return Misuse("a move of a graph in a capture");
  if (Holds(child, graph)) return Misuse("a move of a graph into itself");
  const CUresult result = AddNode(out, graph, dependencies, count, {graph, CU_GRAPH_NODE_TYPE_GRAPH, {child}});
  if (result == CUDA_SUCCESS) found->belongs_to_node = found->was_moved = true;
  return result;
}

CUdeviceptr FakeGraphs::NewMemory(size_t size_bytes, Graph* graph) {
  if (size_bytes == 0 || size_bytes > kMaxMemoryBytes) return 0;
  if (window_used_ + kMaxMemoryBytes > kWindowBytes) return 0;
  const auto address = reinterpret_cast<CUdeviceptr>(window_.get() + window_used_);
  window_used_ += (size_bytes + 255) / 256 * 256;
  ++*num_memory_;
  graph->memory.emplace_back(nullptr, [count = num_memory_](void*) { --*count; });
  return address;
}

void FakeGraphs::Release(CUuserObject object, int64_t count) {
  UserObject* found = Find(object);
  if (found == nullptr) {
    Misuse("a reference to a user object that is gone");
    return;
  }
  if (found->num_references < count) Misuse("a reference that was never there");
  found->num_references -= count;
  if (found->num_references > 0) return;
  const UserObject gone = *found;
  user_objects.erase(object);
  gone.destroy(gone.argument);
}

}  // namespace tally::fakes
