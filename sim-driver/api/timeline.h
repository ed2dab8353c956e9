// The order in which the software device does its work: a graph of tasks, each started when all before it are done.
//
// Streams, events, graphs and the legacy default stream are all expressed as edges here; nothing else orders work.
//   stream S:   A -> B -> [record event E] -> C
//   stream T:             [wait E] -> D            (D starts after the record; C and D overlap)
// A task holds its successors until it is done and never its predecessors, so finished history is freed at once.
//
// One mutex guards the edges, so that "append to this stream" is one step for every thread. Bodies run outside it, on
// threads that sleep when there is nothing to do. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "sim-driver/api/shuffle.h"
#include "sim-driver/api/worker_pool.h"

namespace tally::sim_driver {

// Where the fault of a context is kept; shared by the context and its tasks. 0 (CUDA_SUCCESS) while it is well.
struct FaultState {
  std::atomic<int> error{0};
};

enum class TaskKind : uint8_t {
  kMarker,  // no body: a join, or an event's record
  kInline,  // short body, run under the timeline's mutex: must not block nor call the timeline
  kCopy,    // body moves bytes
  kKernel,  // body starts a kernel, under the mutex; its end is told by Timeline::Finish()
  kHost,    // body is the program's own function; these run one at a time
  kPoll,    // `is_satisfied` is asked again and again until it says yes
};

struct Task {
  TaskKind kind = TaskKind::kMarker;
  bool runs_after_fault = false;  // otherwise the body is skipped once the context has faulted
  int priority = 0;               // as cuStreamCreateWithPriority: smaller starts first
  std::shared_ptr<FaultState> fault;
  std::function<void(const std::shared_ptr<Task>& self)> body;
  std::function<bool()> is_satisfied;

  std::atomic<bool> is_done{false};
  std::atomic<uint64_t> finished_ns{0};  // monotonic; valid once is_done

  // Guarded by the timeline's mutex.
  uint32_t num_unmet = 0;
  std::vector<std::shared_ptr<Task>> successors;
};
using TaskPtr = std::shared_ptr<Task>;

class Timeline {
 public:
  // The one timeline of this process. Never destroyed: threads may outlive main().
  static Timeline& Get();

  // Before the first task: starts the threads that no work could do without. False: the machine has none left.
  // `shuffle_seed`: of the order of what may start (shuffle.h); 0: that in which it came.
  bool Open(uint64_t shuffle_seed);

  // Guards every stream's tail as well: see stream.h.
  std::unique_lock<std::mutex> Lock() { return std::unique_lock(mutex_); }

  // The task starts when all of `after` (null and finished entries are fine) are done. Call with Lock() held.
  void SubmitLocked(const TaskPtr& task, std::span<const TaskPtr> after);

  // Blocks until it is done. Not from a host function.
  void Wait(const TaskPtr& task);
  // The same for several.
  void WaitAll(std::span<const TaskPtr> tasks);

  // A kKernel task has ended. From any thread, also from inside the task's body.
  void Finish(const TaskPtr& task);

  // Wakes the pollers: memory that one of them watches may have changed.
  void Poke();

 private:
  Timeline();
  void StartLocked(TaskPtr task, std::vector<TaskPtr>& finished);
  void StartAtOnceLocked(TaskPtr task, std::vector<TaskPtr>& finished);
  void FinishLocked(std::vector<TaskPtr>& finished);
  void Run(const TaskPtr& task);
  void PollLoop();
  void ShuffleLoop();

  std::mutex mutex_;
  std::condition_variable done_;
  int num_waiting_ = 0;

  std::vector<TaskPtr> polled_;
  std::condition_variable poll_wanted_;
  bool has_poll_thread_ = false;  // guarded by mutex_

  std::optional<Shuffle> shuffle_;  // what may start and has to wait for its draw; guarded by mutex_
  std::condition_variable shuffle_wanted_;

  WorkerPool copies_;
  WorkerPool host_functions_;
};

uint64_t MonotonicNs();

}  // namespace tally::sim_driver
