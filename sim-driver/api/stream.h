// Streams and events as positions on the timeline (timeline.h).
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim-driver/api/handle_table.h"
#include "sim-driver/api/timeline.h"

namespace tally::sim_driver {

class Context;
struct Capture;
struct GraphNode;

// A node that captured work comes after, and what the edge to it will say (programmatic launches).
struct CapturedPoint {
  std::shared_ptr<GraphNode> node;
  CUgraphEdgeData edge{};
};

// Work on one stream runs in order. The legacy stream waits for all blocking streams of its context and they for it.
struct Stream {
  enum class Kind : uint8_t { kLegacy, kPerThread, kCreated };

  CUstream handle = nullptr;
  uint64_t id = 0;
  Kind kind = Kind::kCreated;
  unsigned flags = 0;
  int priority = 0;
  // Cleared when the context is destroyed, under the timeline's mutex.
  std::weak_ptr<Context> context;
  CUsynchronizationPolicy synchronization_policy = CU_SYNC_POLICY_AUTO;
  std::atomic<bool> is_destroyed{false};

  // The last task; guarded by the timeline's mutex.
  TaskPtr tail;

  // Capture; guarded by GraphMutex() (graph.h). `is_capturing` may be read without it.
  std::atomic<bool> is_capturing{false};
  std::shared_ptr<Capture> capture;
  std::vector<CapturedPoint> frontier;  // what the next captured operation depends on

  bool IsBlocking() const { return kind != Kind::kLegacy && (flags & CU_STREAM_NON_BLOCKING) == 0; }
};
using StreamPtr = std::shared_ptr<Stream>;

struct Event {
  CUevent handle = nullptr;
  unsigned flags = 0;
  std::weak_ptr<Context> context;
  // The marker of the last record, null before the first; guarded by the timeline's mutex.
  TaskPtr recorded;
  // Set while the last record was captured; guarded by GraphMutex().
  std::atomic<bool> is_captured{false};
  std::weak_ptr<Capture> capture;
  std::vector<CapturedPoint> captured_at;
};
using EventPtr = std::shared_ptr<Event>;

HandleTable<CUstream, Stream>& Streams();
HandleTable<CUevent, Event>& Events();

// Resolves a handle for a call: the three special values mean a stream of the calling thread's current context. Fails
// with INVALID_HANDLE, or with the sticky error of the stream's context; `context` gets that context.
struct StreamUse {
  StreamPtr stream;
  std::shared_ptr<Context> context;
};
StreamUse UseStream(CUstream handle);
EventPtr FindEvent(CUevent handle);

// Appends `task` to the stream. `after`: further tasks that it waits for.
void Append(const StreamPtr& stream, Context& context, const TaskPtr& task, std::span<const TaskPtr> after = {});
void AppendLocked(const StreamPtr& stream, Context& context, const TaskPtr& task, std::span<const TaskPtr> after = {});
// What a task appended now would wait for.
std::vector<TaskPtr> PredecessorsLocked(const Stream& stream, Context& context);

StreamPtr CreateStream(const std::shared_ptr<Context>& context, unsigned flags, int priority);
void DestroyStream(CUstream handle);
void SynchronizeStream(const StreamUse& use);
CUresult QueryStream(const StreamUse& use);

EventPtr CreateEvent(const std::shared_ptr<Context>& context, unsigned flags);
void RecordEvent(const EventPtr& event, const StreamUse& use);
void WaitForEvent(const StreamUse& use, const EventPtr& event);
void SynchronizeEvent(const EventPtr& event);
CUresult QueryEvent(const EventPtr& event);
float ElapsedMilliseconds(const EventPtr& start, const EventPtr& end);

}  // namespace tally::sim_driver
