// How this executor's contexts take turns on the GPU with those of other executors: their time slices, when they are
// descheduled or preempted (descheduler.h, refresher.h), and what tallyd is told of all that.
//
// Lives on one event loop.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "base/event_loop.h"
#include "server/executor/process/command_line.h"
#include "server/executor/process/daemon_link.h"
#include "server/executor/process/descheduler.h"
#include "server/executor/process/gpu_channel_groups.h"
#include "server/executor/process/refresher.h"

namespace tally::server {

class ContextTurns {
 public:
  // All outlive this.
  ContextTurns(EventLoop& loop, const ExecutorOptions& options, DaemonLink& link);
  ~ContextTurns();
  ContextTurns(const ContextTurns&) = delete;
  ContextTurns& operator=(const ContextTurns&) = delete;

  // Before it there is only an opinion of tallyd's to remember. `executor` lives until Stop.
  void Start(Executor& executor);
  // Everything goes on.
  void Stop();
  // What tallyd asks for, by device; zero: the driver's own slices.
  void OnWanted(const std::vector<std::chrono::microseconds>& slices, bool is_left_to_slices);
  // Another tallyd has been told nothing yet.
  void OnConnected();
  // What the driver says of its time slices decides what tallyd wants next.
  void OnContextMade();
  // Looks what the contexts are like, and tells tallyd what has changed.
  void Check();

 private:
  bool WantsDescheduling() const;
  DaemonLink::ContextStates AllowDescheduling();
  std::unique_ptr<Descheduler> MakeDescheduler(int device);
  bool WantsRefreshing() const;
  void MakeRefreshers();

  EventLoop& loop_;
  const ExecutorOptions& options_;
  DaemonLink& link_;
  Executor* executor_ = nullptr;
  std::vector<std::unique_ptr<Descheduler>> deschedulers_;  // by device
  std::vector<std::unique_ptr<Refresher>> refreshers_;
  bool has_contexts_ = false;
  bool has_said_no_descheduling_ = false;
  GpuChannelGroups::TimeSlices reported_time_slices_;
  DaemonLink::ContextStates reported_contexts_;
};

}  // namespace tally::server
