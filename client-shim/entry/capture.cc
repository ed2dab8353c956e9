// CUDA manual: stream capture. The rules about threads and modes are kept here (state/captures.h), the recording is
// done by the executor.
#include <cstring>
#include <utility>
#include <vector>

#include "client-shim/entry/copy_plan.h"
#include "client-shim/entry/guard.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"
#include "proto/shm/records_stream_abi.h"

namespace tally::client_shim {
namespace {

uint64_t Word(const void* handle) { return reinterpret_cast<uint64_t>(handle); }

struct CaptureAnswer {
  shm::CaptureState state{};
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;
};

CUresult AskState(const Call& call, uint64_t stream, CaptureAnswer* answer) {
  const Reply reply = call.channel->CallStruct(shm::Op::kCaptureState, stream);
  if (reply.result != CUDA_SUCCESS) return reply.result;
  answer->state = reply.Read<shm::CaptureState>();
  const size_t count = answer->state.num_dependencies;
  static_assert(sizeof(CUgraphEdgeData) == 8);
  if (count > (reply.payload_bytes - std::min<size_t>(reply.payload_bytes, sizeof(shm::CaptureState))) / 16)
    return CUDA_ERROR_UNKNOWN;
  answer->nodes.resize(count);
  answer->edges.resize(count);
  if (count != 0) {
    std::memcpy(answer->nodes.data(), reply.payload + sizeof(shm::CaptureState), count * 8);
    std::memcpy(answer->edges.data(), reply.payload + sizeof(shm::CaptureState) + count * 8, count * 8);
  }
  if (call.process->captures.IsSpoilt(stream)) answer->state.status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  return CUDA_SUCCESS;
}

// Arrays that cuStreamGetCaptureInfo returned last to this thread: "valid until the next call", says the manual.
struct ReturnedArrays {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;
};
__thread ReturnedArrays* t_returned __attribute__((tls_model("initial-exec"))) = nullptr;

CUresult CaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                     const CUgraphNode** nodes, const CUgraphEdgeData** edges, size_t* count, bool may_drop_edges) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t word = 0;
  if (const CUresult result = ResolveStream(stream, &word); result != CUDA_SUCCESS) return result;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!call.process->captures.any()) return CUDA_SUCCESS;
  if (word == shm::kLegacyStream) {
    const CUresult result = call.process->captures.CheckLegacyStream(t_thread.context);
    return result;
  }
  CaptureAnswer answer;
  if (const CUresult result = AskState(call, word, &answer); result != CUDA_SUCCESS) return result;
  *status = static_cast<CUstreamCaptureStatus>(answer.state.status);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id != nullptr) *id = answer.state.id;
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(answer.state.graph);
  if (t_returned == nullptr) t_returned = new ReturnedArrays;
  t_returned->nodes = std::move(answer.nodes);
  t_returned->edges = std::move(answer.edges);
  if (edges == nullptr && nodes != nullptr && !may_drop_edges) {
    for (const CUgraphEdgeData& edge : t_returned->edges) {
      const CUgraphEdgeData none{};
      if (std::memcmp(&edge, &none, sizeof(none)) != 0) return CUDA_ERROR_LOSSY_QUERY;
    }
  }
  if (nodes != nullptr) *nodes = t_returned->nodes.data();
  if (edges != nullptr) *edges = t_returned->edges.data();
  if (count != nullptr) *count = t_returned->nodes.size();
  return CUDA_SUCCESS;
}

CUresult SendBegin(const Call& call, shm::Op op, const shm::BeginCapture& begin, const CUgraphNode* nodes,
                   const CUgraphEdgeData* edges) {
  const size_t count = begin.num_dependencies;
  const size_t size = sizeof(begin) + count * 8 + (edges != nullptr ? count * 8 : 0);
  if (size > shm::kMaxRequestBytes / 2) return CUDA_ERROR_INVALID_VALUE;
  std::byte* room = call.channel->Begin(op, static_cast<uint32_t>(size));
  if (room == nullptr) return call.channel->failure();
  std::memcpy(room, &begin, sizeof(begin));
  if (count != 0) std::memcpy(room + sizeof(begin), nodes, count * 8);
  if (count != 0 && edges != nullptr) std::memcpy(room + sizeof(begin) + count * 8, edges, count * 8);
  return call.channel->Call().result;
}

CUresult Begin(CUstream stream, CUgraph graph, const CUgraphNode* nodes, const CUgraphEdgeData* edges, size_t count,
               CUstreamCaptureMode mode) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL && mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
      mode != CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  if (count != 0 && nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t word = 0;
  if (const CUresult result = ResolveStream(stream, &word); result != CUDA_SUCCESS) return result;
  if (word == shm::kLegacyStream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const shm::BeginCapture begin{word,
                                Word(graph),
                                static_cast<uint32_t>(mode),
                                0,
                                static_cast<uint32_t>(count),
                                edges != nullptr && count != 0 ? 1u : 0u};
  if (const CUresult result = SendBegin(call, shm::Op::kBeginCapture, begin, nodes, edges); result != CUDA_SUCCESS)
    return result;
  const Stream* known = word > shm::kPerThreadStream ? call.process->streams.Find(word) : nullptr;
  const bool is_blocking = known == nullptr || (known->flags & CU_STREAM_NON_BLOCKING) == 0;
  call.process->captures.Begin(word, is_blocking, ContextOfStream(word), mode);
  return CUDA_SUCCESS;
}

CUresult Update(CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData* edges, size_t count, unsigned int flags) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if ((count != 0 && nodes == nullptr) || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  uint64_t word = 0;
  if (const CUresult result = ResolveStream(stream, &word); result != CUDA_SUCCESS) return result;
  if (!call.process->captures.any()) return CUDA_ERROR_ILLEGAL_STATE;
  const shm::BeginCapture begin{
      word, 0, 0, flags, static_cast<uint32_t>(count), edges != nullptr && count != 0 ? 1u : 0u};
  return SendBegin(call, shm::Op::kUpdateCapture, begin, nodes, edges);
}

}  // namespace

CUresult IsStreamCapturing(const Call& call, uint64_t stream, bool* is_capturing) {
  *is_capturing = false;
  if (!call.process->captures.any() || stream == shm::kLegacyStream) return CUDA_SUCCESS;
  CaptureAnswer answer;
  if (const CUresult result = AskState(call, stream, &answer); result != CUDA_SUCCESS) return result;
  if (answer.state.status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *is_capturing = answer.state.status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

namespace entry {

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return Begin(hStream, nullptr, nullptr, nullptr, 0, mode);
}
CUresult cuStreamBeginCapture(CUstream hStream) {
  return entry::cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  if (hGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Begin(hStream, hGraph, dependencies, dependencyData, numDependencies, mode);
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (phGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phGraph = nullptr;
  uint64_t word = 0;
  if (const CUresult result = ResolveStream(hStream, &word); result != CUDA_SUCCESS) return result;
  if (const CUresult result = call.process->captures.CheckEnd(word); result != CUDA_SUCCESS) return result;
  const Reply reply = call.channel->CallStruct(shm::Op::kEndCapture, word);
  const auto graph = reinterpret_cast<CUgraph>(reply.Read<uint64_t>());
  bool was_open = false;
  const CUresult spoilt = call.process->captures.End(word, &was_open);
  if (reply.result != CUDA_SUCCESS) return reply.result;
  if (spoilt != CUDA_SUCCESS) {
    if (graph != nullptr) wire::cuGraphDestroy(graph);
    return spoilt;
  }
  *phGraph = graph;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return CaptureInfo(hStream, captureStatus, nullptr, nullptr, nullptr, nullptr, nullptr, true);
}
CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out) {
  return CaptureInfo(hStream, captureStatus_out, id_out, nullptr, nullptr, nullptr, nullptr, true);
}
CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   size_t* numDependencies_out) {
  return CaptureInfo(hStream, captureStatus_out, id_out, graph_out, dependencies_out, nullptr, numDependencies_out,
                     true);
}
CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edgeData_out, size_t* numDependencies_out) {
  return CaptureInfo(hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out,
                     false);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies, size_t numDependencies,
                                           unsigned int flags) {
  return Update(hStream, dependencies, nullptr, numDependencies, flags);
}
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                              unsigned int flags) {
  return Update(hStream, dependencies, dependencyData, numDependencies, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  const auto before = static_cast<CUstreamCaptureMode>(t_thread.capture_mode);
  t_thread.capture_mode = static_cast<uint8_t>(*mode);
  *mode = before;
  return CUDA_SUCCESS;
}

}  // namespace entry
}  // namespace tally::client_shim
