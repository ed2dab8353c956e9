// The window of one session, from what its launches touch to the graphs that they are issued as. None if the program
// did not ask for one (docs/window.md).
//
// Guarded by the session's sequencer, but for has_launches().
#pragma once

#include <map>
#include <memory>
#include <span>

#include "server/executor/driver/completion_source.h"
#include "server/executor/issue/access_finder.h"
#include "server/executor/issue/launch_window.h"
#include "server/executor/issue/remembered_graphs.h"
#include "server/executor/session/window_memory.h"

namespace tally::server {

class SessionState;

class SessionWindow {
 public:
  // `holds`: else it only looks (shadow). The session outlives it.
  SessionWindow(SessionState& session, bool holds);

  LaunchWindow& launches() { return launches_; }
  const LaunchWindow& launches() const { return launches_; }
  const LaunchMemory& memory() const { return memory_; }
  bool are_graphs_forced() const { return are_graphs_forced_; }
  // What a launch touches, held or not. Valid until the next call.
  const LaunchAccesses& AccessesOf(const PendingLaunch& launch);
  // What memory said for that; as AccessFinder::answers.
  const MemoryAnswers& answers() const { return accesses_.answers(); }
  // Code is about to go, or functions to change: nothing that was made for them is used again. Nothing may
  // be held. A context must be current.
  void Forget();
  void Forget(const Kernel& kernel);

 private:
  RememberedGraphs& GraphsOf(int device);
  CUresult Issue(const scheduler::WindowShape& shape, std::span<PendingLaunch> launches,
                 scheduler::WayDurations* durations);
  // In program order.
  CUresult IssueOne(PendingLaunch& launch);
  bool IsIdle() const;
  // What is known of shapes, for tallyctl.
  void PublishShapes();

  SessionState& session_;
  const bool are_graphs_forced_;
  const WindowMemory memory_;
  AccessFinder accesses_;
  std::map<int, std::unique_ptr<RememberedGraphs>> graphs_;  // by device
  Mark last_issued_;                                         // behind the last batch
  TimePoint published_at_;
  LaunchWindow launches_;
};

}  // namespace tally::server
