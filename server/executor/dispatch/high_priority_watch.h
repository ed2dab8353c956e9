// What best-effort work may know about high-priority work on this machine, per device. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace tally::server {

class HighPriorityWatch {
 public:
  virtual ~HighPriorityWatch() = default;
  // High-priority work runs, or ended so recently that more of it is expected (the hold-off).
  virtual bool IsClosed(int device) = 0;
  // There is somebody from whom high-priority work may come there.
  virtual bool IsHighPriorityPresent(int device) = 0;
  // This executor runs such work there itself, or once did.
  virtual bool IsOneOfThem(int /*device*/) { return false; }
  // When the high-priority work that runs, or ran last, was announced.
  virtual TimePoint ClosedSince(int device) = 0;
  // While it is not closed: since when, the hold-off included. High-priority work that came and went meanwhile counts,
  // also where whoever waited for it has slept too long to see it.
  virtual TimePoint OpenSince(int device) = 0;
  // Sleeps until IsClosed, at most `timeout`.
  virtual void WaitWhileOpen(int device, std::chrono::nanoseconds timeout) = 0;
  // Sleeps until it is no longer so, at most `timeout`.
  virtual void WaitWhileClosed(int device, std::chrono::nanoseconds timeout) = 0;
  // A number that is the same at two moments only if no high-priority work came between; none while there is some.
  virtual std::optional<uint32_t> QuietPhase(int device) = 0;
  // Best-effort work waits for long (standstill.h); how often that was said.
  virtual void OnStandstill(int /*device*/) {}
  virtual uint64_t NumStandstills(int /*device*/) { return 0; }
};

}  // namespace tally::server
