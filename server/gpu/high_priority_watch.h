// What best-effort work may know about high-priority work on this machine, per device. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace tally::server {

class HighPriorityWatch {
 public:
  virtual ~HighPriorityWatch() = default;
  // Somebody has high priority, working or not: only then is anything ever closed.
  virtual bool IsPresent() = 0;
  // High-priority work runs, or ended so recently that more of it is expected (the hold-off).
  virtual bool IsClosed(int device) = 0;
  // Sleeps until IsClosed, at most `timeout`.
  virtual void WaitWhileOpen(int device, std::chrono::nanoseconds timeout) = 0;
  // Sleeps until it is no longer so, at most `timeout`.
  virtual void WaitWhileClosed(int device, std::chrono::nanoseconds timeout) = 0;
  // A number that is the same at two moments only if no high-priority work came between; none while there is some.
  virtual std::optional<uint32_t> QuietPhase(int device) = 0;
};

}  // namespace tally::server
