// Stream capture. The executor always captures relaxed: what the client's thread may do meanwhile is checked there.
#include "proto/shm/records_stream_abi.h"
#include "server/executor/session/operations.h"

namespace tally::server {
namespace {

struct Dependencies {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;
  const CUgraphEdgeData* edge_pointer() const { return edges.empty() ? nullptr : edges.data(); }
};

CUresult ReadDependencies(ServedRequest& served, ClientNames& names, WireReader& in, const shm::BeginCapture& request,
                          Dependencies* result) {
  if (request.num_dependencies > in.remaining() / sizeof(uint64_t)) return served.Malformed();
  std::vector<uint64_t> handles(request.num_dependencies);
  for (uint64_t& handle : handles) handle = in.TakeWord();
  if (request.has_edge_data != 0) {
    result->edges.resize(request.num_dependencies);
    for (CUgraphEdgeData& edge : result->edges) in.TakeStruct(&edge);
  }
  if (!in.AtEnd()) return served.Malformed();
  return names.FindAll(shm::HandleKind::kGraphNode, handles, &result->nodes);
}

}  // namespace

CUresult ServeBeginCapture(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  shm::BeginCapture request{};
  in.TakeStruct(&request);
  Dependencies dependencies;
  if (const CUresult r = ReadDependencies(served, names, in, request, &dependencies); r != CUDA_SUCCESS) return r;
  Stream* stream = nullptr;
  // Named, not ordered: earlier work of the legacy stream must not get into the graph.
  if (const CUresult r = names.ResolveStream(request.stream, StreamUse::kNamed, &stream); r != CUDA_SUCCESS) return r;
  if (stream->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (const CUresult r = stream->Seal(); r != CUDA_SUCCESS) return r;
  CUresult result = CUDA_SUCCESS;
  if (request.graph != 0) {
    CUgraph graph = nullptr;
    if (const CUresult r = names.Find(shm::HandleKind::kGraph, request.graph, &graph); r != CUDA_SUCCESS) return r;
    if (served.driver().cuStreamBeginCaptureToGraph == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    result = served.driver().cuStreamBeginCaptureToGraph(
        stream->real, graph, dependencies.nodes.empty() ? nullptr : dependencies.nodes.data(),
        dependencies.edge_pointer(), dependencies.nodes.size(), CU_STREAM_CAPTURE_MODE_RELAXED);
  } else {
    result = served.driver().cuStreamBeginCapture_v2(stream->real, CU_STREAM_CAPTURE_MODE_RELAXED);
  }
  if (result != CUDA_SUCCESS) return result;
  stream->began_capture = true;
  stream->capture_spoiled = false;
  ++served.session().num_captures;
  return CUDA_SUCCESS;
}

CUresult ServeEndCapture(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  Stream* stream = nullptr;
  if (const CUresult r = names.ResolveStream(handle, StreamUse::kNamed, &stream); r != CUDA_SUCCESS) return r;
  if (stream->began_capture && stream->capture_spoiled) {
    served.session().AbandonCapture(*stream);
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  CUgraph graph = nullptr;
  const CUresult result = served.driver().cuStreamEndCapture(stream->real, &graph);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // Ended or invalidated, unless the driver says that it still goes on (a wrong stream, unjoined work).
  if (stream->began_capture &&
      (result == CUDA_SUCCESS || (served.driver().cuStreamIsCapturing(stream->real, &status) == CUDA_SUCCESS &&
                                  status == CU_STREAM_CAPTURE_STATUS_NONE))) {
    stream->began_capture = false;
    --served.session().num_captures;
  }
  if (result != CUDA_SUCCESS) return result;
  out.PutHandle(names, shm::HandleKind::kGraph, graph);
  return CUDA_SUCCESS;
}

// What is launched as it comes is nobody's task: outside of a capture nothing happens.
CUresult ServeBeginTask(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  shm::BeginTask request{};
  in.TakeStruct(&request);
  const uint64_t num_boxes = uint64_t{request.num_reads} + request.num_writes + request.num_scratch;
  if (num_boxes > shm::kMaxDeclaredBoxes) return served.Malformed();
  DeclaredTask task;
  task.num_reads = request.num_reads;
  task.num_writes = request.num_writes;
  task.boxes.resize(num_boxes);
  for (shm::DeclaredBox& box : task.boxes) in.TakeStruct(&box);
  if (!in.AtEnd()) return served.Malformed();
  Stream* stream = nullptr;
  if (const CUresult r = names.ResolveStream(request.stream, StreamUse::kNamed, &stream); r != CUDA_SUCCESS) return r;
  const CUgraph graph = stream->context->CapturedGraph(*stream);
  if (graph == nullptr || served.session().spread_memory == nullptr) return CUDA_SUCCESS;
  return served.session().graphs.declared.Begin(served.driver(), stream->real, graph, std::move(task));
}

CUresult ServeEndTask(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  Stream* stream = nullptr;
  if (const CUresult r = names.ResolveStream(handle, StreamUse::kNamed, &stream); r != CUDA_SUCCESS) return r;
  const CUgraph graph = stream->context->CapturedGraph(*stream);
  if (graph == nullptr || served.session().spread_memory == nullptr) return CUDA_SUCCESS;
  return served.session().graphs.declared.End(served.driver(), stream->real, graph);
}

CUresult ServeCaptureState(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  Stream* stream = nullptr;
  if (const CUresult r = names.ResolveStream(handle, StreamUse::kNamed, &stream); r != CUDA_SUCCESS) return r;
  if (stream->is_legacy) {
    for (const auto& other : stream->context->streams()) {
      if (other->is_blocking && stream->context->IsCapturing(*other)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  const DriverTable& driver = served.driver();
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (driver.cuStreamGetCaptureInfo_v3 != nullptr) {
    result = driver.cuStreamGetCaptureInfo_v3(stream->real, &status, &id, &graph, &nodes, &edges, &count);
  } else if (driver.cuStreamGetCaptureInfo_v2 != nullptr) {
    result = driver.cuStreamGetCaptureInfo_v2(stream->real, &status, &id, &graph, &nodes, &count);
  }
  if (result != CUDA_SUCCESS) return result;
  shm::CaptureState state{};
  state.status = stream->capture_spoiled && status == CU_STREAM_CAPTURE_STATUS_ACTIVE
                     ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                     : status;
  if (state.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    out.PutStruct(state);
    return CUDA_SUCCESS;
  }
  state.id = id;
  state.graph = names.NameOf(shm::HandleKind::kGraph, graph);
  state.num_dependencies = static_cast<uint32_t>(count);
  out.PutStruct(state);
  for (size_t i = 0; i < count; ++i) out.PutHandle(names, shm::HandleKind::kGraphNode, nodes[i]);
  for (size_t i = 0; i < count; ++i) out.PutStruct(edges != nullptr ? edges[i] : CUgraphEdgeData{});
  return CUDA_SUCCESS;
}

CUresult ServeUpdateCapture(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  shm::BeginCapture request{};
  in.TakeStruct(&request);
  Dependencies dependencies;
  if (const CUresult r = ReadDependencies(served, names, in, request, &dependencies); r != CUDA_SUCCESS) return r;
  Stream* stream = nullptr;
  if (const CUresult r = names.ResolveStream(request.stream, StreamUse::kNamed, &stream); r != CUDA_SUCCESS) return r;
  CUgraphNode* nodes = dependencies.nodes.empty() ? nullptr : dependencies.nodes.data();
  const DriverTable& driver = served.driver();
  if (driver.cuStreamUpdateCaptureDependencies_v2 != nullptr) {
    return driver.cuStreamUpdateCaptureDependencies_v2(stream->real, nodes, dependencies.edge_pointer(),
                                                       dependencies.nodes.size(), request.flags);
  }
  if (driver.cuStreamUpdateCaptureDependencies == nullptr || !dependencies.edges.empty()) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return driver.cuStreamUpdateCaptureDependencies(stream->real, nodes, dependencies.nodes.size(), request.flags);
}

}  // namespace tally::server
