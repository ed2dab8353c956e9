// How many launches of one best-effort tenant may be on their way to the GPU where nothing else bounds them.
//
// The driver's ring of a channel holds about a thousand. A thread that finds it full stays in the driver and keeps its
// processor busy until there is room, which is long if the context is suspended meanwhile; a few such threads leave
// those of high-priority programs too few processors. So a tenant stops before, and its thread sleeps.
//
// Not thread-safe: guarded by its session's turn.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>

#include "server/executor/driver/driver_table.h"
#include "server/executor/driver/event_pool.h"

namespace tally::server {

class RunAhead {
 public:
  // What is on its way is marked by an event now and then, so it is known as roughly.
  static constexpr uint32_t kLaunchesPerMark = 128;
  static constexpr size_t kMostMarks = 4;

  explicit RunAhead(const DriverTable& driver) : driver_(driver) {}
  RunAhead(const RunAhead&) = delete;
  RunAhead& operator=(const RunAhead&) = delete;

  // Fewer than kLaunchesPerMark * (kMostMarks + 1) are on their way. Never waits.
  bool HasRoom();
  // One was put on that stream, whose context is current. Events are taken from `events`, which outlives this.
  void OnLaunch(CUstream stream, EventPool& events);
  // Nothing is on its way any more.
  void Clear();

 private:
  struct Mark {
    CUevent event = nullptr;
    EventPool* from = nullptr;
  };

  const DriverTable& driver_;
  std::deque<Mark> marks_;  // the oldest first
  uint32_t num_unmarked_ = 0;
};

}  // namespace tally::server
