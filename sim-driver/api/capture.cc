#include "sim-driver/api/capture.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "sim-driver/api/context.h"
#include "sim-driver/api/error.h"

namespace tally::sim_driver {
namespace {

// All captures that are going on. Guarded by GraphMutex(); the count may be read without it.
std::vector<CapturePtr>& Ongoing() {
  static auto& captures = *new std::vector<CapturePtr>();
  return captures;
}
std::atomic<int> num_ongoing{0};
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// A legacy-stream operation would make the capture depend on work that is not captured. A mere query does no harm.
void RefuseImplicitLocked(const StreamUse& use, bool is_query = false) {
  if (use.stream->kind != Stream::Kind::kLegacy) return;
  bool is_refused = false;
  for (const CapturePtr& capture : Ongoing()) {
    for (const auto& weak : capture->streams) {
      const StreamPtr stream = weak.lock();
      if (!stream || !stream->IsBlocking() || stream->context.lock() != use.context) continue;
      if (!is_query) capture->is_invalidated = true;
      is_refused = true;
    }
  }
  Require(!is_refused, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void RequireValid(const Capture& capture) { Require(!capture.is_invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED); }

constexpr CUgraphEdgeData Programmatic(unsigned char port) {
  CUgraphEdgeData edge{};
  edge.from_port = port;
  edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  return edge;
}

bool StartsBeforeItsPredecessorsEnd(const KernelOperation& kernel) {
  return std::any_of(kernel.attributes.begin(), kernel.attributes.end(), [](const CUlaunchAttribute& attribute) {
    return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
           attribute.value.programmaticStreamSerializationAllowed != 0;
  });
}

// Only kernels can depend on a part of another node, which must be a kernel.
CUgraphEdgeData EdgeBetween(const CapturedPoint& from, const Operation& to) {
  const auto* const kernel = std::get_if<KernelOperation>(&to);
  if (kernel == nullptr) return {};
  const bool follows_kernel = std::holds_alternative<KernelOperation>(from.node->operation);
  if (from.edge.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT && follows_kernel && StartsBeforeItsPredecessorsEnd(*kernel)) {
    return Programmatic(CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
  }
  return from.edge;
}

GraphNodePtr CaptureLocked(const StreamUse& use, Operation operation) {
  const CapturePtr& capture = use.stream->capture;
  RequireValid(*capture);
  std::vector<GraphNodePtr> nodes;
  std::vector<CUgraphEdgeData> edges;
  for (const CapturedPoint& point : use.stream->frontier) {
    nodes.push_back(point.node);
    edges.push_back(EdgeBetween(point, operation));
  }
  GraphNodePtr node = AddNode(capture->graph, nodes, edges, std::move(operation), use.context);
  use.stream->frontier = {{node}};
  return node;
}

void BeginLocked(const StreamUse& use, CapturePtr capture, std::vector<CapturedPoint> frontier) {
  static std::atomic<uint64_t> next_id{1};
  Require(use.stream->kind != Stream::Kind::kLegacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  Require(!use.stream->capture, CUDA_ERROR_ILLEGAL_STATE);
  capture->id = next_id.fetch_add(1);
  capture->thread = std::this_thread::get_id();
  capture->origin = use.stream;
  capture->streams.push_back(use.stream);
  use.stream->capture = capture;
  use.stream->frontier = std::move(frontier);
  use.stream->is_capturing.store(true);
  Ongoing().push_back(std::move(capture));
  num_ongoing.fetch_add(1);
}

void LeaveLocked(const CapturePtr& capture) {
  for (const auto& weak : capture->streams) {
    const StreamPtr stream = weak.lock();
    if (!stream || stream->capture != capture) continue;
    stream->is_capturing.store(false);
    stream->capture = nullptr;
    stream->frontier.clear();
  }
  if (std::erase(Ongoing(), capture) != 0) num_ongoing.fetch_sub(1);
}

void AddToFrontier(Stream& stream, const std::vector<CapturedPoint>& points) {
  for (const CapturedPoint& point : points) {
    const bool is_known = std::any_of(stream.frontier.begin(), stream.frontier.end(),
                                      [&point](const CapturedPoint& known) { return known.node == point.node; });
    if (!is_known) stream.frontier.push_back(point);
  }
}

void RequireMode(CUstreamCaptureMode mode) {
  Require(mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
              mode == CU_STREAM_CAPTURE_MODE_RELAXED,
          CUDA_ERROR_INVALID_VALUE);
}

}  // namespace

bool IsCapturing(const StreamPtr& stream) { return stream->is_capturing.load(std::memory_order_acquire); }

TaskPtr Issue(const StreamUse& use, Operation operation) {
  if (num_ongoing.load(std::memory_order_acquire) != 0) {
    const std::lock_guard lock(GraphMutex());
    if (use.stream->capture) {
      CaptureLocked(use, std::move(operation));
      return nullptr;
    }
    RefuseImplicitLocked(use);
  }
  return SubmitOperation(use, std::move(operation));
}

void RefuseWhileCapturing(const StreamPtr& stream) {
  if (num_ongoing.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(GraphMutex());
  if (stream->capture) {
    stream->capture->is_invalidated = true;
    Fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  if (ContextPtr context = stream->context.lock()) RefuseImplicitLocked({stream, std::move(context)});
}

void RefuseUnsafeCall(const ContextPtr&) {
  if (num_ongoing.load(std::memory_order_acquire) == 0 || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return;
  const std::lock_guard lock(GraphMutex());
  bool is_refused = false;
  for (const CapturePtr& capture : Ongoing()) {
    const bool is_own =
        capture->thread == std::this_thread::get_id() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool is_global =
        capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!is_own && !is_global) continue;
    capture->is_invalidated = true;
    is_refused = true;
  }
  Require(!is_refused, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUstreamCaptureMode ExchangeThreadMode(CUstreamCaptureMode mode) {
  RequireMode(mode);
  return std::exchange(thread_mode, mode);
}

void IssueEventRecord(const StreamUse& use, const EventPtr& event, bool is_external, unsigned char port) {
  if (num_ongoing.load(std::memory_order_acquire) == 0) {
    event->is_captured.store(false);
    RecordEvent(event, use);
    return;
  }
  const std::lock_guard lock(GraphMutex());
  if (!use.stream->capture) {
    RefuseImplicitLocked(use);
    event->is_captured.store(false);
    event->captured_at.clear();
    RecordEvent(event, use);
    return;
  }
  RequireValid(*use.stream->capture);
  if (is_external) {
    CaptureLocked(use, EventRecordOperation{event});
    return;
  }
  event->is_captured.store(true);
  event->capture = use.stream->capture;
  event->captured_at = use.stream->frontier;
  if (port == 0) return;
  for (CapturedPoint& point : event->captured_at) point.edge = Programmatic(port);
}

void IssueEventWait(const StreamUse& use, const EventPtr& event, bool is_external) {
  if (num_ongoing.load(std::memory_order_acquire) == 0) {
    Require(!event->is_captured.load(), CUDA_ERROR_CAPTURED_EVENT);
    WaitForEvent(use, event);
    return;
  }
  const std::lock_guard lock(GraphMutex());
  Stream& stream = *use.stream;
  if (!event->is_captured.load()) {
    if (!stream.capture) {
      RefuseImplicitLocked(use);
      WaitForEvent(use, event);
      return;
    }
    RequireValid(*stream.capture);
    if (is_external) {
      CaptureLocked(use, EventWaitOperation{event});
      return;
    }
    bool was_recorded = false;
    {
      const auto timeline_lock = Timeline::Get().Lock();
      was_recorded = event->recorded != nullptr;
    }
    if (!was_recorded) return;
    stream.capture->is_invalidated = true;
    Fail(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  const CapturePtr capture = event->capture.lock();
  const bool is_over = !capture || std::find(Ongoing().begin(), Ongoing().end(), capture) == Ongoing().end();
  Require(!is_over, CUDA_ERROR_CAPTURED_EVENT);
  RequireValid(*capture);
  if (!stream.capture) {
    if (stream.kind == Stream::Kind::kLegacy) {
      capture->is_invalidated = true;
      Fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    // The stream joins.
    stream.capture = capture;
    stream.frontier = event->captured_at;
    stream.is_capturing.store(true);
    capture->streams.push_back(use.stream);
    return;
  }
  if (stream.capture != capture) {
    stream.capture->is_invalidated = true;
    capture->is_invalidated = true;
    Fail(CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  AddToFrontier(stream, event->captured_at);
}

void BeginCapture(const StreamUse& use, CUstreamCaptureMode mode) {
  RequireMode(mode);
  const std::lock_guard lock(GraphMutex());
  auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  Require(use.stream->kind != Stream::Kind::kLegacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  Require(!use.stream->capture, CUDA_ERROR_ILLEGAL_STATE);
  capture->graph = CreateGraph();
  BeginLocked(use, std::move(capture), {});
}

void BeginCaptureTo(const StreamUse& use, CUstreamCaptureMode mode, const GraphPtr& graph,
                    std::vector<CapturedPoint> dependencies) {
  RequireMode(mode);
  const std::lock_guard lock(GraphMutex());
  for (const CapturedPoint& point : dependencies) {
    Require(point.node->graph.lock() == graph, CUDA_ERROR_INVALID_VALUE);
  }
  auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  capture->graph = graph;
  capture->is_into_existing = true;
  BeginLocked(use, std::move(capture), std::move(dependencies));
}

GraphPtr EndCapture(const StreamUse& use) {
  const std::lock_guard lock(GraphMutex());
  const CapturePtr capture = use.stream->capture;
  Require(capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
  if (capture->origin.lock() != use.stream) {
    capture->is_invalidated = true;
    Fail(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  }
  Require(capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->thread == std::this_thread::get_id(),
          CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  const std::vector<CapturedPoint> frontier = use.stream->frontier;
  bool is_joined = true;
  for (const auto& weak : capture->streams) {
    const StreamPtr stream = weak.lock();
    if (!stream || stream == use.stream || stream->capture != capture) continue;
    for (const CapturedPoint& point : stream->frontier) {
      is_joined = is_joined && std::any_of(frontier.begin(), frontier.end(), [&point](const CapturedPoint& last) {
                    return IsReachable(point.node, last.node);
                  });
    }
  }
  LeaveLocked(capture);
  if (capture->is_invalidated || !is_joined) {
    if (!capture->is_into_existing) DestroyGraph(capture->graph);
    Fail(capture->is_invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  }
  return capture->graph;
}

void AbandonCapture(const StreamPtr& stream) {
  if (!IsCapturing(stream)) return;
  const std::lock_guard lock(GraphMutex());
  const CapturePtr capture = stream->capture;
  if (!capture) return;
  capture->is_invalidated = true;
  if (capture->origin.lock() == stream) {
    LeaveLocked(capture);
    if (!capture->is_into_existing) DestroyGraph(capture->graph);
  }
}

CaptureState StateOfCapture(const StreamUse& use) {
  CaptureState state;
  if (num_ongoing.load(std::memory_order_acquire) == 0) return state;
  const std::lock_guard lock(GraphMutex());
  const CapturePtr& capture = use.stream->capture;
  if (!capture) {
    RefuseImplicitLocked(use, /*is_query=*/true);
    return state;
  }
  state.status = capture->is_invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  state.id = capture->id;
  if (capture->is_invalidated) return state;
  state.graph = capture->graph->handle;
  for (const CapturedPoint& point : use.stream->frontier) {
    state.frontier.push_back(point.node->handle);
    state.edges.push_back(point.edge);
  }
  return state;
}

void UpdateFrontier(const StreamUse& use, const std::vector<CapturedPoint>& points, bool is_replacing) {
  const std::lock_guard lock(GraphMutex());
  const CapturePtr& capture = use.stream->capture;
  Require(capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
  RequireValid(*capture);
  for (const CapturedPoint& point : points) {
    Require(point.node->graph.lock() == capture->graph, CUDA_ERROR_INVALID_VALUE);
  }
  if (is_replacing) use.stream->frontier.clear();
  AddToFrontier(*use.stream, points);
}

}  // namespace tally::sim_driver
