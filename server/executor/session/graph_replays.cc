#include "server/executor/session/graph_replays.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <span>

#include "server/executor/session/admitted_copies.h"
#include "server/executor/session/graph_target.h"
#include "server/executor/session/kernel_ops.h"
#include "server/executor/session/launch_record.h"

namespace tally::server {
namespace {

// Nodes, each behind those that it depends on. Nothing: edges say more than that, or it is too large.
std::optional<std::vector<CUgraphNode>> InOrder(const DriverTable& driver, CUgraph graph, size_t most) {
  size_t num_nodes = 0, num_edges = 0;
  if (driver.cuGraphGetNodes(graph, nullptr, &num_nodes) != CUDA_SUCCESS || num_nodes > most) return std::nullopt;
  if (driver.cuGraphGetEdges(graph, nullptr, nullptr, &num_edges) != CUDA_SUCCESS) return std::nullopt;
  std::vector<CUgraphNode> nodes(num_nodes), from(num_edges), to(num_edges);
  if (num_nodes != 0 && driver.cuGraphGetNodes(graph, nodes.data(), &num_nodes) != CUDA_SUCCESS) return std::nullopt;
  if (num_edges != 0 && driver.cuGraphGetEdges(graph, from.data(), to.data(), &num_edges) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  std::unordered_map<CUgraphNode, size_t> num_waiting_for;
  std::unordered_map<CUgraphNode, std::vector<CUgraphNode>> followers;
  for (size_t i = 0; i < num_edges; ++i) {
    ++num_waiting_for[to[i]];
    followers[from[i]].push_back(to[i]);
  }
  std::deque<CUgraphNode> ready;
  for (const CUgraphNode node : nodes) {
    if (!num_waiting_for.contains(node)) ready.push_back(node);
  }
  std::vector<CUgraphNode> order;
  while (!ready.empty()) {
    order.push_back(ready.front());
    ready.pop_front();
    for (const CUgraphNode follower : followers[order.back()]) {
      if (--num_waiting_for[follower] == 0) ready.push_back(follower);
    }
  }
  if (order.size() != nodes.size()) return std::nullopt;
  return order;
}

// Of a copy: that it is from device memory to device memory.
bool IsDeviceMemory(const DriverTable& driver, CUmemorytype type, CUdeviceptr address) {
  if (type == CU_MEMORYTYPE_DEVICE) return true;
  if (type != CU_MEMORYTYPE_UNIFIED) return false;
  unsigned int found = 0;
  return driver.cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
         found == CU_MEMORYTYPE_DEVICE;
}

// What launch attributes of the node mean something for how it runs, but for hints; false: it cannot be launched alone.
bool ReadAttributes(const DriverTable& driver, CUgraphNode node, std::vector<CUlaunchAttribute>* attributes) {
  CUlaunchAttributeValue value{};
  if (driver.cuGraphKernelNodeGetAttribute == nullptr) return false;
  const auto get = [&](CUlaunchAttributeID id) {
    value = {};
    return driver.cuGraphKernelNodeGetAttribute(node, id, &value) == CUDA_SUCCESS;
  };
  if (!get(CU_LAUNCH_ATTRIBUTE_COOPERATIVE) || value.cooperative != 0) return false;
  if (get(CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) && value.deviceUpdatableKernelNode.deviceUpdatable != 0) {
    return false;
  }
  if (get(CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION) && value.preferredClusterDim.x != 0) return false;
  if (get(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) && value.clusterDim.x != 0) {
    CUlaunchAttribute& attribute = attributes->emplace_back();
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value = value;
  }
  return true;
}

}  // namespace

std::optional<GraphReplays::Node> GraphReplays::Read(ServedRequest& served, CUgraphNode node, CUgraphNodeType type) {
  const DriverTable& driver = served.driver();
  if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
    CUDA_MEMSET_NODE_PARAMS fill{};
    if (driver.cuGraphMemsetNodeGetParams(node, &fill) != CUDA_SUCCESS) return std::nullopt;
    return fill;
  }
  if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    CUDA_MEMCPY3D copy{};
    if (driver.cuGraphMemcpyNodeGetParams(node, &copy) != CUDA_SUCCESS) return std::nullopt;
    if (!IsDeviceMemory(driver, copy.srcMemoryType, copy.srcDevice)) return std::nullopt;
    if (!IsDeviceMemory(driver, copy.dstMemoryType, copy.dstDevice)) return std::nullopt;
    return copy;
  }
  if (type != CU_GRAPH_NODE_TYPE_KERNEL) return std::nullopt;
  shm::Launch launch{};
  std::vector<std::byte> parameters;
  std::vector<CUlaunchAttribute> attributes;
  if (ReadKernelNode(served, node, &launch, &parameters) != CUDA_SUCCESS) return std::nullopt;
  if (!ReadAttributes(driver, node, &attributes)) return std::nullopt;
  launch.num_attributes = static_cast<uint16_t>(attributes.size());
  if (!attributes.empty()) launch.flags |= shm::kLaunchEx;
  const auto head = std::as_bytes(std::span(&launch, 1)), tail = std::as_bytes(std::span(attributes));
  KernelRecord record(head.begin(), head.end());
  record.insert(record.end(), tail.begin(), tail.end());
  record.insert(record.end(), parameters.begin(), parameters.end());
  record.resize(PaddedTo8(record.size()));
  return record;
}

std::vector<GraphReplays::Node> GraphReplays::NodesOf(ServedRequest& served, CUgraph graph) {
  const SessionState& session = served.session();
  const DriverTable& driver = served.driver();
  if (session.core.variants == nullptr || session.keeps_kernels || driver.cuGraphGetEdges == nullptr) return {};
  // Whoever owns something together with a graph is told when the driver has run it.
  if (!session.graphs.user_objects.empty()) return {};
  const auto order = InOrder(driver, graph, kMostNodes);
  if (!order) return {};
  std::vector<Node> nodes;
  bool has_kernels = false;
  for (const CUgraphNode node : *order) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return {};
    if (type == CU_GRAPH_NODE_TYPE_EMPTY) continue;
    auto read = Read(served, node, type);
    if (!read) return {};
    has_kernels |= type == CU_GRAPH_NODE_TYPE_KERNEL;
    nodes.push_back(std::move(*read));
  }
  return has_kernels ? std::move(nodes) : std::vector<Node>();
}

void GraphReplays::OnInstantiated(ServedRequest& served, CUgraph graph, CUgraphExec exec) {
  std::vector<Node> nodes = NodesOf(served, graph);
  if (!nodes.empty()) {
    execs_[exec].nodes = std::move(nodes);
  } else {
    OnChanged(exec);
  }
}

void GraphReplays::OnChanged(CUgraphExec exec) {
  if (const auto found = execs_.find(exec); found != execs_.end()) found->second.nodes.clear();
}

bool GraphReplays::MayReplay(ServedRequest& served, const Stream& stream, const Exec& exec) {
  const SessionState& session = served.session();
  if (exec.nodes.empty() || session.is_high_priority.load(std::memory_order_relaxed)) return false;
  if (!session.core.variants->MightStop(stream.context->device())) return false;
  // What a launch would be refused for natively, the graph is not: its kernels may be of a device that is not the
  // stream's, or want more shared memory than their function was allowed since.
  CUcontext context = nullptr;
  if (session.core.devices->count() != 1) return false;
  if (session.core.devices->Context(stream.context->device(), &context) != CUDA_SUCCESS) return false;
  for (const Node& node : exec.nodes) {
    const auto* record = std::get_if<KernelRecord>(&node);
    if (record == nullptr) continue;
    shm::Launch launch{};
    std::memcpy(&launch, record->data(), sizeof(launch));
    const Kernel* kernel = FindKernel(served.session(), launch.function);
    if (kernel == nullptr) return false;  // its module is gone
    if (launch.shared_bytes == 0) continue;
    CUfunction function = kernel->function;
    int allowed = 0;
    if (function == nullptr && served.driver().cuKernelGetFunction(&function, kernel->kernel) != CUDA_SUCCESS) {
      return false;
    }
    const CUresult result =
        served.driver().cuFuncGetAttribute(&allowed, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function);
    if (result != CUDA_SUCCESS || allowed < static_cast<int>(launch.shared_bytes)) return false;
  }
  return true;
}

CUresult GraphReplays::OrderBehindAll(Stream& stream) {
  Mark mark;
  if (const CUresult r = stream.context->MarkAll(&mark); r != CUDA_SUCCESS) return r;
  const CUresult result = stream.Seal();
  return result == CUDA_SUCCESS ? mark.HoldBack(stream.real) : result;
}

CUresult GraphReplays::Launch(ServedRequest& served, ClientNames& names, Stream& stream, const Node& node) {
  if (const auto* record = std::get_if<KernelRecord>(&node)) {
    shm::Launch head{};
    WireReader in(*record);
    if (const CUresult r = ReadLaunch(served, names, in, &head, &served.launch()); r != CUDA_SUCCESS) return r;
    return PutLaunch(served.session(), stream, served.launch());
  }
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  if (const auto* fill = std::get_if<CUDA_MEMSET_NODE_PARAMS>(&node)) return PutFill(served.session(), stream, *fill);
  return PutBox(served.session(), stream, std::get<CUDA_MEMCPY3D>(node), CopyDirection::kDevice);
}

std::optional<CUresult> GraphReplays::TryLaunch(ServedRequest& served, ClientNames& names, Stream& stream,
                                                CUgraphExec graph_exec) {
  const auto found = execs_.find(graph_exec);
  if (found == execs_.end() || stream.context->IsCapturing(stream)) return std::nullopt;
  Exec& exec = found->second;
  const bool is_replayed = MayReplay(served, stream, exec);
  const bool is_same_stream = exec.last_stream == &stream && exec.last_handle == stream.handle;
  const bool may_overlap = exec.last_stream != nullptr && !is_same_stream;
  if (may_overlap && (is_replayed || exec.was_replayed)) {
    if (const CUresult r = OrderBehindAll(stream); r != CUDA_SUCCESS) return r;
  }
  exec.last_stream = &stream;
  exec.last_handle = stream.handle;
  exec.was_replayed = is_replayed;
  if (!is_replayed) return std::nullopt;
  for (const Node& node : exec.nodes) {
    if (const CUresult r = Launch(served, names, stream, node); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

}  // namespace tally::server
