// Graph nodes whose parameters hold pointers: kernels, copies, fills, host functions; and the update of executables.
#include <optional>
#include <utility>

#include "server/executor/issue/driver_arguments.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/session/box_copy.h"
#include "server/executor/session/graph_target.h"
#include "server/executor/session/kernel_ops.h"
#include "server/executor/session/launch_record.h"
#include "server/executor/session/operations.h"
#include "server/executor/session/session_window.h"

namespace tally::server {
namespace {

// The parameter buffer of a node that was launched with one.
std::vector<std::byte> ExtraBytes(void** extra) {
  const std::byte* bytes = nullptr;
  size_t size = 0;
  for (int i = 0; i < 8 && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) bytes = static_cast<const std::byte*>(extra[i + 1]);
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<const size_t*>(extra[i + 1]);
  }
  return bytes != nullptr ? std::vector(bytes, bytes + size) : std::vector<std::byte>();
}

CUresult ReadCopy(ServedRequest& served, ClientNames& names, ArenaChunks& chunks, WireReader& in, BoxCopy* copy) {
  shm::CopyBox box{};
  in.TakeStruct(&box);
  if (!in.AtEnd() || box.inline_bytes != 0) return served.Malformed();
  const auto is_place = [](uint32_t place) {
    return place == static_cast<uint32_t>(shm::Place::kAddress) || place == static_cast<uint32_t>(shm::Place::kArray);
  };
  if (!is_place(box.source.place) || !is_place(box.destination.place)) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult r = ReadBoxCopy(served, names, chunks, box, {}, copy); r != CUDA_SUCCESS) return r;
  return copy->size_bytes != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult ReadFill(ServedRequest& served, WireReader& in, CUDA_MEMSET_NODE_PARAMS* p) {
  shm::Fill fill{};
  in.TakeStruct(&fill);
  if (!in.AtEnd()) return served.Malformed();
  if (const CUresult r = CheckFill(served, fill); r != CUDA_SUCCESS) return r;
  *p = {};
  p->dst = fill.address;
  p->pitch = fill.pitch_bytes;
  p->value = fill.value;
  p->elementSize = fill.element_bytes;
  p->width = fill.width;
  p->height = fill.height;
  return CUDA_SUCCESS;
}

// Of a kernel node that reads and writes what its parameters say, once that is known; of a copy or fill.
scheduler::GraphNodeAccesses AccessesIn(ServedRequest& served, Stream& stream, CUgraphNode node,
                                        MemoryAnswers& answers) {
  SessionState& session = served.session();
  if (const auto transfer = TransferIn(served.driver(), node)) {
    LaunchAccesses of_transfer;
    if (FindAccesses(*transfer, session.window->memory(), &of_transfer, &answers) != nullptr) return {};
    return {.extent = of_transfer.extent, .accesses = std::move(of_transfer.accesses)};
  }
  PendingLaunch launch;
  if (!ReadAsLaunch(served, stream, node, &launch)) return {};
  const LaunchAccesses& accesses = session.window->AccessesOf(launch);
  if (accesses.barrier != nullptr) return {};
  answers.Join(session.window->answers());
  return {.extent = accesses.extent, .accesses = accesses.accesses};
}

constexpr size_t kMaxKeptHostCalls = 1 << 24;

// A node's host function may run any number of times: the call is kept until the session ends.
CUresult ReadHostCall(ServedRequest& served, WireReader& in, CUDA_HOST_NODE_PARAMS* p) {
  shm::LaunchHostFunction request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  SessionState& session = served.session();
  if (session.host_calls.kept.size() >= kMaxKeptHostCalls) return CUDA_ERROR_OUT_OF_MEMORY;
  session.host_calls.kept.push_back(
      std::make_unique<HostCall>(HostCall{session.host_calls.queue, request.token, true}));
  p->fn = &RunHostFunction;
  p->userData = session.host_calls.kept.back().get();
  return CUDA_SUCCESS;
}

}  // namespace

std::optional<Transfer> TransferIn(const DriverTable& driver, CUgraphNode node) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return std::nullopt;
  CUDA_MEMCPY3D copy{};
  if (type == CU_GRAPH_NODE_TYPE_MEMCPY && driver.cuGraphMemcpyNodeGetParams(node, &copy) == CUDA_SUCCESS) {
    return TransferOf(copy);
  }
  CUDA_MEMSET_NODE_PARAMS fill{};
  if (type == CU_GRAPH_NODE_TYPE_MEMSET && driver.cuGraphMemsetNodeGetParams(node, &fill) == CUDA_SUCCESS) {
    return TransferOf(fill);
  }
  return std::nullopt;
}

bool ReadAsLaunch(ServedRequest& served, Stream& stream, CUgraphNode node, PendingLaunch* launch) {
  shm::Launch head{};
  std::vector<std::byte> parameters;
  if (ReadKernelNode(served, node, &head, &parameters) != CUDA_SUCCESS || head.flags != 0) return false;
  launch->kernel = FindKernel(served.session(), head.function);
  if (launch->kernel == nullptr || parameters.size() < launch->kernel->parameter_bytes) return false;
  std::ranges::copy(head.grid, launch->shape.grid.begin());
  std::ranges::copy(head.block, launch->shape.block.begin());
  launch->shape.shared_bytes = head.shared_bytes;
  launch->parameters.Assign(parameters);
  launch->parameter_bytes = head.parameter_bytes;
  launch->owner = &served.session().launches;
  launch->stream = &stream;
  return true;
}

bool ReadLaunchAttributes(const DriverTable& driver, CUgraphNode node, std::vector<CUlaunchAttribute>* attributes) {
  CUlaunchAttributeValue value{};
  const auto get = [&](CUlaunchAttributeID id) {
    value = {};
    return driver.cuGraphKernelNodeGetAttribute(node, id, &value) == CUDA_SUCCESS;
  };
  if (!get(CU_LAUNCH_ATTRIBUTE_COOPERATIVE) || value.cooperative != 0) return false;
  if (get(CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION) && value.preferredClusterDim.x != 0) return false;
  if (get(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) && value.clusterDim.x != 0) {
    CUlaunchAttribute& attribute = attributes->emplace_back();
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value = value;
  }
  return true;
}

CUresult ServeAddKernelNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  GraphTarget target;
  if (const CUresult r = ReadAddTarget(served, names, in, &target); r != CUDA_SUCCESS) return r;
  PendingLaunch& launch = served.launch();
  shm::Launch record{};
  if (const CUresult r = ReadLaunch(served, names, in, &record, &launch); r != CUDA_SUCCESS) return r;
  if (served.driver().cuGraphAddKernelNode_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  DriverArguments arguments(launch);
  const CUDA_KERNEL_NODE_PARAMS_v2 parameters = KernelNodeOf(launch, arguments);
  CUgraphNode node = nullptr;
  CUresult result = served.driver().cuGraphAddKernelNode_v2(&node, target.graph, target.dependency_pointer(),
                                                            target.dependencies.size(), &parameters);
  for (const CUlaunchAttribute& attribute : launch.attributes) {
    if (result != CUDA_SUCCESS) break;
    result = served.driver().cuGraphKernelNodeSetAttribute(node, attribute.id, &attribute.value);
    if (result != CUDA_SUCCESS) served.driver().cuGraphDestroyNode(node);
  }
  return PutNode(names, result, node, out);
}

// In the program's executable and, as far as that can be followed, in what is launched in its place.
static CUresult SetInExec(ServedRequest& served, const GraphTarget& target, const GraphLaunches::SetInExec& in_exec,
                          const GraphLaunches::SetInGraph& in_graph) {
  const CUresult result = in_exec(target.exec, target.node);
  if (result == CUDA_SUCCESS) {
    served.session().graphs.launches.OnNodeSet(target.exec, target.node, in_graph, in_exec);
  }
  return result;
}

CUresult ServeSetKernelNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  GraphTarget target;
  if (const CUresult r = ReadSetTarget(served, names, in, &target); r != CUDA_SUCCESS) return r;
  PendingLaunch& launch = served.launch();
  shm::Launch record{};
  if (const CUresult r = ReadLaunch(served, names, in, &record, &launch); r != CUDA_SUCCESS) return r;
  DriverArguments arguments(launch);
  const CUDA_KERNEL_NODE_PARAMS_v2 parameters = KernelNodeOf(launch, arguments);
  const DriverTable& driver = served.driver();
  if (target.exec != nullptr) {
    if (driver.cuGraphExecKernelNodeSetParams_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    return SetInExec(
        served, target,
        [&](CUgraphExec exec, CUgraphNode node) {
          return driver.cuGraphExecKernelNodeSetParams_v2(exec, node, &parameters);
        },
        [&](CUgraphNode node) { return driver.cuGraphKernelNodeSetParams_v2(node, &parameters); });
  }
  if (driver.cuGraphKernelNodeSetParams_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return driver.cuGraphKernelNodeSetParams_v2(target.node, &parameters);
}

CUresult ReadKernelNode(ServedRequest& served, CUgraphNode node, shm::Launch* launch, std::vector<std::byte>* packed) {
  if (served.driver().cuGraphKernelNodeGetParams_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUDA_KERNEL_NODE_PARAMS_v2 p{};
  if (const CUresult r = served.driver().cuGraphKernelNodeGetParams_v2(node, &p); r != CUDA_SUCCESS) return r;
  const auto& known = served.session().code.kernel_of;
  auto found = known.find(p.kern);
  if (p.kern == nullptr || found == known.end()) found = known.find(p.func);
  if (found == known.end()) {
    // Captured through a function that the client never looked up: a kernel's function in the context.
    CUfunction function = nullptr;
    for (const auto& [key, kernel] : known) {
      if (kernel->kernel == nullptr || served.driver().cuKernelGetFunction(&function, kernel->kernel) != CUDA_SUCCESS) {
        continue;
      }
      if (function == p.func) {
        found = known.find(key);
        break;
      }
    }
  }
  if (found == known.end()) return CUDA_ERROR_NOT_SUPPORTED;
  const Kernel& kernel = *found->second;
  launch->function = kernel.handle;
  launch->grid[0] = p.gridDimX;
  launch->grid[1] = p.gridDimY;
  launch->grid[2] = p.gridDimZ;
  launch->block[0] = p.blockDimX;
  launch->block[1] = p.blockDimY;
  launch->block[2] = p.blockDimZ;
  launch->shared_bytes = p.sharedMemBytes;
  if (p.kernelParams != nullptr) {
    packed->resize(kernel.parameter_bytes);
    for (size_t i = 0; i < kernel.layout.size(); ++i) {
      std::memcpy(packed->data() + kernel.layout[i].offset_bytes, p.kernelParams[i], kernel.layout[i].size_bytes);
    }
  } else if (p.extra != nullptr) {
    *packed = ExtraBytes(p.extra);
    if (kernel.gate) packed->resize(std::min<size_t>(packed->size(), kernel.parameter_bytes));
    launch->flags = shm::kLaunchExtra;
  }
  launch->parameter_bytes = static_cast<uint32_t>(packed->size());
  return CUDA_SUCCESS;
}

CUresult ServeGetKernelNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  CUgraphNode node = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraphNode, handle, &node); r != CUDA_SUCCESS) return r;
  shm::Launch launch{};
  std::vector<std::byte> packed;
  if (const CUresult r = ReadKernelNode(served, node, &launch, &packed); r != CUDA_SUCCESS) return r;
  out.PutStruct(launch);
  out.PutBytes(packed);
  return CUDA_SUCCESS;
}

CUresult ServeAddCopyNode(ServedRequest& served, ClientNames& names, ArenaChunks& chunks, WireReader& in,
                          WireWriter& out) {
  GraphTarget target;
  if (const CUresult r = ReadAddTarget(served, names, in, &target); r != CUDA_SUCCESS) return r;
  BoxCopy copy;
  if (const CUresult r = ReadCopy(served, names, chunks, in, &copy); r != CUDA_SUCCESS) return r;
  CUcontext context = nullptr;
  if (const CUresult r = NodeContext(served, &context); r != CUDA_SUCCESS) return r;
  CUgraphNode node = nullptr;
  const CUresult result = served.driver().cuGraphAddMemcpyNode(&node, target.graph, target.dependency_pointer(),
                                                               target.dependencies.size(), &copy.parameters, context);
  return PutNode(names, result, node, out);
}

CUresult ServeSetCopyNode(ServedRequest& served, ClientNames& names, ArenaChunks& chunks, WireReader& in, WireWriter&) {
  GraphTarget target;
  if (const CUresult r = ReadSetTarget(served, names, in, &target); r != CUDA_SUCCESS) return r;
  BoxCopy copy;
  if (const CUresult r = ReadCopy(served, names, chunks, in, &copy); r != CUDA_SUCCESS) return r;
  CUcontext context = nullptr;
  if (const CUresult r = NodeContext(served, &context); r != CUDA_SUCCESS) return r;
  if (target.exec != nullptr) {
    return SetInExec(
        served, target,
        [&](CUgraphExec exec, CUgraphNode node) {
          return served.driver().cuGraphExecMemcpyNodeSetParams(exec, node, &copy.parameters, context);
        },
        [&](CUgraphNode node) { return served.driver().cuGraphMemcpyNodeSetParams(node, &copy.parameters); });
  }
  return served.driver().cuGraphMemcpyNodeSetParams(target.node, &copy.parameters);
}

CUresult ServeAddFillNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  GraphTarget target;
  if (const CUresult r = ReadAddTarget(served, names, in, &target); r != CUDA_SUCCESS) return r;
  CUDA_MEMSET_NODE_PARAMS parameters;
  if (const CUresult r = ReadFill(served, in, &parameters); r != CUDA_SUCCESS) return r;
  CUcontext context = nullptr;
  if (const CUresult r = NodeContext(served, &context); r != CUDA_SUCCESS) return r;
  CUgraphNode node = nullptr;
  const CUresult result = served.driver().cuGraphAddMemsetNode(&node, target.graph, target.dependency_pointer(),
                                                               target.dependencies.size(), &parameters, context);
  return PutNode(names, result, node, out);
}

CUresult ServeSetFillNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  GraphTarget target;
  if (const CUresult r = ReadSetTarget(served, names, in, &target); r != CUDA_SUCCESS) return r;
  CUDA_MEMSET_NODE_PARAMS parameters;
  if (const CUresult r = ReadFill(served, in, &parameters); r != CUDA_SUCCESS) return r;
  CUcontext context = nullptr;
  if (const CUresult r = NodeContext(served, &context); r != CUDA_SUCCESS) return r;
  if (target.exec != nullptr) {
    return SetInExec(
        served, target,
        [&](CUgraphExec exec, CUgraphNode node) {
          return served.driver().cuGraphExecMemsetNodeSetParams(exec, node, &parameters, context);
        },
        [&](CUgraphNode node) { return served.driver().cuGraphMemsetNodeSetParams(node, &parameters); });
  }
  return served.driver().cuGraphMemsetNodeSetParams(target.node, &parameters);
}

CUresult ServeAddHostNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  GraphTarget target;
  if (const CUresult r = ReadAddTarget(served, names, in, &target); r != CUDA_SUCCESS) return r;
  CUDA_HOST_NODE_PARAMS parameters{};
  if (const CUresult r = ReadHostCall(served, in, &parameters); r != CUDA_SUCCESS) return r;
  CUgraphNode node = nullptr;
  const CUresult result = served.driver().cuGraphAddHostNode(&node, target.graph, target.dependency_pointer(),
                                                             target.dependencies.size(), &parameters);
  return PutNode(names, result, node, out);
}

CUresult ServeSetHostNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  GraphTarget target;
  if (const CUresult r = ReadSetTarget(served, names, in, &target); r != CUDA_SUCCESS) return r;
  CUDA_HOST_NODE_PARAMS parameters{};
  if (const CUresult r = ReadHostCall(served, in, &parameters); r != CUDA_SUCCESS) return r;
  if (target.exec != nullptr) {
    return served.driver().cuGraphExecHostNodeSetParams(target.exec, target.node, &parameters);
  }
  return served.driver().cuGraphHostNodeSetParams(target.node, &parameters);
}

CUresult LaunchExec(ServedRequest& served, Stream& stream, CUgraphExec exec) {
  SessionState& session = served.session();
  // Its kernels may be of a device that is not the stream's.
  if (session.graphs.twins == nullptr || session.core.devices->count() != 1) {
    return served.driver().cuGraphLaunch(exec, stream.real);
  }
  const GraphTwins::Place place{stream.real, session.core.devices->completions(stream.device),
                                session.window->memory()};
  const GraphTwins::Counts before = session.graphs.twins->counts();
  const CUresult result = session.graphs.twins->Launch(
      exec, place, [&](CUgraphNode node, MemoryAnswers& answers) { return AccessesIn(served, stream, node, answers); });
  const GraphTwins::Counts& after = session.graphs.twins->counts();
  session.counters.Add("window_twins", after.twins_made - before.twins_made);
  session.counters.Add("window_twin_launches", after.twin_launches - before.twin_launches);
  session.counters.Add("window_twins_slower", after.twins_slower - before.twins_slower);
  session.counters.Add("window_in_order_ns", after.durations.in_order - before.durations.in_order);
  session.counters.Add("window_in_graphs_ns", after.durations.as_issued - before.durations.as_issued);
  return result;
}

CUresult ServeUpdateExec(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  const uint64_t exec_handle = in.TakeWord();
  const uint64_t graph_handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  CUgraphExec exec = nullptr;
  CUgraph graph = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraphExec, exec_handle, &exec); r != CUDA_SUCCESS) return r;
  if (const CUresult r = names.Find(shm::HandleKind::kGraph, graph_handle, &graph); r != CUDA_SUCCESS) return r;
  if (served.session().graphs.nested.IsMoved(graph)) return CUDA_ERROR_INVALID_VALUE;
  if (served.driver().cuGraphExecUpdate_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (const auto& twins = served.session().graphs.twins) twins->OnChanged(exec);
  CUgraphExecUpdateResultInfo details{};
  const CUresult result = served.driver().cuGraphExecUpdate_v2(exec, graph, &details);
  if (result == CUDA_SUCCESS) served.session().graphs.launches.OnUpdated(served, graph, exec);
  // The details matter most when it failed: they go along either way.
  const std::array<uint32_t, 2> head = {static_cast<uint32_t>(details.result), 0};
  out.PutStruct(head);
  out.PutHandle(names, shm::HandleKind::kGraphNode, details.errorNode);
  out.PutHandle(names, shm::HandleKind::kGraphNode, details.errorFromNode);
  return result;
}

CUresult ServeInstantiate(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  shm::Instantiate request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  CUgraph graph = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraph, request.graph, &graph); r != CUDA_SUCCESS) return r;
  if (served.session().graphs.nested.IsMoved(graph)) return CUDA_ERROR_INVALID_VALUE;
  // A kernel that launches a graph names it by the driver's own pointer, which the client does not have.
  if ((request.flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const DriverTable& driver = served.driver();
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  parameters.flags = request.flags;
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (driver.cuGraphInstantiateWithParams != nullptr) {
    if ((request.flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) {
      if (const CUresult r = names.ResolveStream(request.upload_stream, StreamUse::kOrdered, &parameters.hUploadStream);
          r != CUDA_SUCCESS) {
        return r;
      }
    }
    result = driver.cuGraphInstantiateWithParams(&exec, graph, &parameters);
  } else if (driver.cuGraphInstantiateWithFlags != nullptr) {
    result = driver.cuGraphInstantiateWithFlags(&exec, graph, request.flags);
    parameters.result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  }
  shm::Instantiated reply{};
  reply.result = static_cast<uint32_t>(parameters.result_out);
  if (result == CUDA_SUCCESS) {
    served.session().graphs.memory.OnInstantiated(graph, exec);
    served.session().graphs.launches.OnInstantiated(served, graph, exec, request.flags);
    // Whoever owns something together with a graph is told when the last of its clones is gone.
    if (const auto& twins = served.session().graphs.twins; twins && served.session().graphs.user_objects.empty()) {
      twins->OnInstantiated(graph, exec, request.flags);
    }
    reply.exec = names.NameOf(shm::HandleKind::kGraphExec, exec);
  }
  if (parameters.hErrNode_out != nullptr) {
    reply.error_node = names.NameOf(shm::HandleKind::kGraphNode, parameters.hErrNode_out);
  }
  out.PutStruct(reply);
  return result;
}

}  // namespace tally::server
