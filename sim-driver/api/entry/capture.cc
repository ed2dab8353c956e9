// Stream capture.
#include "sim-driver/api/capture.h"

#include "sim-driver/api/entry/entry.h"

using namespace tally::sim_driver;

namespace {

std::vector<CapturedPoint> FindPoints(const CUgraphNode* handles, const CUgraphEdgeData* edges, size_t count) {
  Require(count == 0 || handles != nullptr, CUDA_ERROR_INVALID_VALUE);
  std::vector<CapturedPoint> points;
  for (size_t i = 0; i < count; ++i) {
    points.push_back({FindNode(handles[i]), edges != nullptr ? edges[i] : CUgraphEdgeData{}});
  }
  return points;
}

void GetInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
             const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
  const StreamUse use = UseStream(stream);
  RequireOut(status);
  const CaptureState state = StateOfCapture(use);
  *status = state.status;
  if (id != nullptr) *id = state.id;
  if (graph != nullptr) *graph = state.graph;
  // Valid until the next call of this thread that asks again.
  thread_local std::vector<CUgraphNode> nodes;
  thread_local std::vector<CUgraphEdgeData> data;
  nodes = state.frontier;
  data = state.edges;
  if (dependencies != nullptr) *dependencies = nodes.empty() ? nullptr : nodes.data();
  if (edges != nullptr) *edges = nodes.empty() ? nullptr : data.data();
  if (count != nullptr) *count = nodes.size();
}

}  // namespace

TALLY_EXPORT CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  TALLY_ENTRY({ BeginCapture(UseStream(hStream), mode); });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamBeginCapture(CUstream hStream) {
  return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TALLY_EXPORT CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                                          const CUgraphNode* dependencies,
                                                          const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                                          CUstreamCaptureMode mode) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    BeginCaptureTo(use, mode, FindGraph(hGraph), FindPoints(dependencies, dependencyData, numDependencies));
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    RequireOut(phGraph);
    *phGraph = nullptr;
    *phGraph = EndCapture(use)->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    RequireOut(captureStatus);
    *captureStatus = StateOfCapture(use).status;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                                     cuuint64_t* id_out) {
  TALLY_ENTRY({ GetInfo(hStream, captureStatus_out, id_out, nullptr, nullptr, nullptr, nullptr); });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                                        cuuint64_t* id_out, CUgraph* graph_out,
                                                        const CUgraphNode** dependencies_out,
                                                        size_t* numDependencies_out) {
  TALLY_ENTRY(
      { GetInfo(hStream, captureStatus_out, id_out, graph_out, dependencies_out, nullptr, numDependencies_out); });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                                        cuuint64_t* id_out, CUgraph* graph_out,
                                                        const CUgraphNode** dependencies_out,
                                                        const CUgraphEdgeData** edgeData_out,
                                                        size_t* numDependencies_out) {
  TALLY_ENTRY(
      { GetInfo(hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out); });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                                                   const CUgraphEdgeData* dependencyData,
                                                                   size_t numDependencies, unsigned int flags) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    Require(flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES || flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES,
            CUDA_ERROR_INVALID_VALUE);
    UpdateFrontier(use, FindPoints(dependencies, dependencyData, numDependencies),
                   flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies,
                                                                size_t numDependencies, unsigned int flags) {
  return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, nullptr, numDependencies, flags);
}

TALLY_EXPORT CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(mode);
    *mode = ExchangeThreadMode(*mode);
  });
}
