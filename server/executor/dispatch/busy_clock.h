// How long one session has work on one GPU: the union of its stretches of work.
//
//     put  put  put    the program has waited       put    the program is silent: its streams are looked at
//     |--------------------|                        |-------------|
//           a stretch          nothing of it is there     a stretch
//
// A stretch begins when work (a kernel, a graph, a copy, a fill) is handed to the driver while nothing of the session
// is on the GPU, and ends when all of it has been seen to be complete: by waits of the program, which are free, or,
// once the program is silent, by looks at its streams (StreamWaits::LookAtStreams). Work that is held back has not
// begun.
//
// A launch costs two loads and two stores, and no call of the driver: no mark per launch. The first of a stretch takes
// a lock that nobody else wants, but for scrapes, and reads the clock.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "server/executor/dispatch/used_devices.h"

namespace tally::server {

class BusyClock;

// Who is told of stretches, of one session.
class BusyListener {
 public:
  virtual ~BusyListener() = default;
  // One has begun on a device. By the thread that hands the work over, with a lock of the clock's: quickly.
  virtual void OnBusy(int device, TimePoint at) = 0;
  // Something is complete; it may have ended one. Any thread.
  virtual void OnSeen() = 0;
};

// The work of one stream. Shared with channels that wait without the sequencer; may outlive its stream, not its clock.
// Thread-safe, but for what says otherwise.
class StreamWork {
 public:
  explicit StreamWork(BusyClock& clock) : clock_(clock) {}

  BusyClock& clock() const { return clock_; }
  // Operations ever put on the stream. Changes only under the session's sequencer.
  uint64_t num_put() const { return num_put_.load(std::memory_order_relaxed); }
  bool is_done() const { return num_seen_.load(std::memory_order_acquire) == num_put(); }
  // The first `num_put` are complete; known since `at`.
  void OnSeen(uint64_t num_put, TimePoint at);

 private:
  friend class BusyClock;
  TimePoint done_at() const { return done_at_.load(std::memory_order_relaxed); }

  BusyClock& clock_;
  std::atomic<uint64_t> num_put_{0};
  std::atomic<uint64_t> num_seen_{0};
  std::atomic<TimePoint> done_at_{TimePoint{}};  // when num_seen_ last grew
};

// By the class that the session had: best-effort, high-priority.
using BusyTimes = std::array<std::chrono::nanoseconds, 2>;

// Of one session and one device. `clock` and `used`, which may be null, outlive it.
class BusyClock {
 public:
  BusyClock(const Clock& clock, int device, UsedDevices* used) : clock_(clock), device_(device), used_(used) {}
  BusyClock(const BusyClock&) = delete;
  BusyClock& operator=(const BusyClock&) = delete;

  // An operation is about to be handed to the driver. By the holder of the session's sequencer.
  void OnWork(const std::shared_ptr<StreamWork>& work) {
    if (work->is_done()) Begin(work);
    work->num_put_.store(work->num_put() + 1, std::memory_order_release);
    num_put_.store(num_put() + 1, std::memory_order_relaxed);
  }
  // Operations ever, on all streams.
  uint64_t num_put() const { return num_put_.load(std::memory_order_relaxed); }

  TimePoint Now() const { return clock_.Now(); }
  // From now on; it lives as long as this. Any thread.
  void Tell(BusyListener& listener);
  // Thread-safe. Work is on the GPU, as far as is known.
  bool IsBusy() const;
  // Thread-safe. So far, the stretch that runs included; never less than before. What has come since the last call is
  // counted for the class given, so this is to be called before the class changes.
  BusyTimes Measure(bool is_high_priority);

 private:
  friend class StreamWork;
  void Begin(const std::shared_ptr<StreamWork>& work);
  bool IsBusyLocked() const;
  // Of the stretch that runs, or ran last.
  TimePoint EndLocked(TimePoint now) const;

  const Clock& clock_;
  const int device_;
  UsedDevices* const used_;
  std::atomic<uint64_t> num_put_{0};
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<StreamWork>> in_use_;  // guarded by mutex_, as all below; the stretch's streams
  TimePoint began_{};                                // of that stretch
  std::chrono::nanoseconds before_{0};               // stretches before that one
  std::chrono::nanoseconds measured_{0};
  BusyTimes by_class_{};
  std::atomic<BusyListener*> listener_{nullptr};  // not guarded
};

// Of one session: a clock for each device.
class BusyTime {
 public:
  // `clock` and `used` outlive it. Null: nobody asks which devices are used.
  BusyTime(int num_devices, const Clock& clock, UsedDevices* used = nullptr) {
    for (int device = 0; device < num_devices; ++device) {
      clocks_.push_back(std::make_unique<BusyClock>(clock, device, used));
    }
  }

  BusyClock& On(int device) { return *clocks_[static_cast<size_t>(device)]; }
  const std::vector<std::unique_ptr<BusyClock>>& clocks() const { return clocks_; }
  // Thread-safe.
  bool IsBusy() const;
  // Operations ever, on all devices.
  uint64_t num_put() const;

  // The program has learned, by an event, that something of its first `num_put` operations is complete. If a look finds
  // later that all of them are, and no more has come, they were so then. Thread-safe.
  void OnEvent(uint64_t num_put, TimePoint at);
  // When to count as complete what is found complete `now`. By the holder of the session's sequencer.
  TimePoint WhenDone(TimePoint now) const;

 private:
  std::vector<std::unique_ptr<BusyClock>> clocks_;  // constant
  std::atomic<uint64_t> event_num_put_{UINT64_MAX};
  std::atomic<TimePoint> event_at_{TimePoint{}};
};

}  // namespace tally::server
