// Stream capture: calls on a capturing stream become nodes of a graph instead of work.
//
// A capture belongs to the stream that began it and spreads to other streams through events. A call that is not
// possible while capturing fails and spoils the capture: it then only ends, with STREAM_CAPTURE_INVALIDATED.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "sim-driver/api/graph.h"
#include "sim-driver/api/operation.h"
#include "sim-driver/api/stream.h"

namespace tally::sim_driver {

struct Capture {
  uint64_t id = 0;
  GraphPtr graph;
  bool is_into_existing = false;  // cuStreamBeginCaptureToGraph: the graph was the program's before
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  std::weak_ptr<Stream> origin;
  std::vector<std::weak_ptr<Stream>> streams;  // the origin and those that joined
  bool is_invalidated = false;
};
using CapturePtr = std::shared_ptr<Capture>;

// Does the operation on the stream: the task, or null when it was captured.
TaskPtr Issue(const StreamUse& use, Operation operation);

bool IsCapturing(const StreamPtr& stream);
// For calls that have no meaning for a capturing stream (synchronise, query).
void RefuseWhileCapturing(const StreamPtr& stream);
// For calls that could disturb any capture (allocation, synchronous copies): see cuThreadExchangeStreamCaptureMode.
void RefuseUnsafeCall(const ContextPtr& context);
CUstreamCaptureMode ExchangeThreadMode(CUstreamCaptureMode mode);

// Events in captures: record and wait, with their own rules. Both work for streams that do not capture, too.
// `port`: for the events of a programmatic launch, when the kernel that was just put on the stream lets others start.
void IssueEventRecord(const StreamUse& use, const EventPtr& event, bool is_external, unsigned char port = 0);
void IssueEventWait(const StreamUse& use, const EventPtr& event, bool is_external);

void BeginCapture(const StreamUse& use, CUstreamCaptureMode mode);
void BeginCaptureTo(const StreamUse& use, CUstreamCaptureMode mode, const GraphPtr& graph,
                    std::vector<CapturedPoint> dependencies);
GraphPtr EndCapture(const StreamUse& use);
// The stream goes away: its capture is spoilt.
void AbandonCapture(const StreamPtr& stream);

struct CaptureState {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  uint64_t id = 0;
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> frontier;
  std::vector<CUgraphEdgeData> edges;  // one per node of the frontier
};
// Fails with STREAM_CAPTURE_IMPLICIT for the legacy stream beside a capturing blocking stream.
CaptureState StateOfCapture(const StreamUse& use);
void UpdateFrontier(const StreamUse& use, const std::vector<CapturedPoint>& points, bool is_replacing);

}  // namespace tally::sim_driver
