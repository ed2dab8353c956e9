// Launches of persistent blocks on one device: they yield to high-priority work and go on when it is over.
//
//   stream      | persistent blocks run | wait until completed_blocks == blocks | what the program queued next
//                       ^ flag: they stop at the next block boundary
//   resume      |                             they run again, from where they stopped
//
// A launch is put on the program's stream followed by a wait for its count of completed blocks, so the program can go
// on queueing and nothing overtakes a launch that has yielded. One thread watches for high-priority work: it raises the
// flag, measures how long the GPU took to come free, lowers the flag when the work is over, and launches what is left
// on a stream of its own.
//
// How soon the GPU comes free is the sum of: the page is marked -> this thread sees it -> the flag is written -> the
// blocks that run end. So the thread polls while there is something to be asked
// (server/executor/dispatch/polling_watch.h).
//
// Source: Tally, section 4 (preemption) and 5 (priority-aware scheduling).
//
// Thread-safe.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "proto/control/session_figures.h"
#include "proto/device/variant_abi.h"
#include "server/executor/dispatch/figure_counters.h"
#include "server/executor/dispatch/polling_watch.h"
#include "server/executor/driver/completion_source.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/control_slots.h"
#include "server/executor/issue/pending_launch.h"

namespace tally::server {

// Whose launches they are. Thread-safe.
struct RunsOwner {
  FigureCounters figures;
  // A launch of persistent blocks, or a queue of gated launches, that was running when it was asked to has given the
  // GPU back: from the announcement on the activity page until it was seen, until the driver had taken the store to the
  // flag, until the last block was seen to have left.
  void CountYield(std::chrono::nanoseconds seen, std::chrono::nanoseconds written, std::chrono::nanoseconds left) {
    figures.Add("timed_yields");
    figures.Add("yield_seen_ns", seen);
    figures.Add("yield_written_ns", written);
    figures.Add("yield_left_ns", left);
  }
  // A gated queue in which something was running was stopped: it left within that time, from the store to its record.
  void CountStop(std::chrono::nanoseconds left) {
    left = std::max(left, left.zero());
    const auto bucket = std::ranges::lower_bound(control::kStopBoundsNs, static_cast<uint64_t>(left.count()));
    figures.Add("stops", 1, static_cast<size_t>(bucket - std::begin(control::kStopBoundsNs)));
    figures.Add("stop_ns", left);
  }
  // A kernel has kept the GPU for so long after stops, the last time for `left`.
  void NoteLongBlocks(const std::string& kernel, std::chrono::nanoseconds left);
  // Called the first time, with locks held: quickly. Constant once there are launches; null: nobody wants to know.
  std::function<void(const std::string& kernel, std::chrono::nanoseconds left)> on_long_blocks;
  // Of a program in a context of both classes, for who reads the log; empty: nobody need read it. Constant once there
  // are launches.
  std::string name;
  std::atomic<bool> has_long_blocks{false};
  // Became high-priority: what has yielded goes on at once and does not yield any more, because what the program
  // queues behind it counts as high-priority work now.
  std::atomic<bool> is_high_priority{false};
  // The client is gone: what has yielded need not go on, nobody looks at its results.
  std::atomic<bool> has_left{false};
};

// How a launch runs by persistent blocks.
struct PersistentForm {
  CUfunction function = nullptr;
  uint32_t num_persistent_blocks = 0;
  size_t hidden_offset = 0;  // of device::PersistentParameters, behind the program's parameters
  uint32_t extra_shared_bytes = 0;
};

struct PersistentRunCounts {
  uint64_t num_launches = 0;
  uint64_t num_yields = 0;   // times that the flag was raised with a launch in flight
  uint64_t num_resumes = 0;  // launches continued
};

class PersistentRuns {
 public:
  // `on_failure`: a launch that had yielded could not be continued; its stream will wait for ever. `watch` may be null:
  // nobody has priority. All outlive this. The context must be current. `may_spin`: see PollingWatch.
  static std::unique_ptr<PersistentRuns> Create(const DriverTable& driver, CompletionSource& completions,
                                                CUcontext context, int device, HighPriorityWatch* watch,
                                                std::function<void(CUresult)> on_failure, const Clock& clock,
                                                bool may_spin = MaySpinLong());
  // Everything that is in flight is finished first.
  ~PersistentRuns();
  PersistentRuns(const PersistentRuns&) = delete;
  PersistentRuns& operator=(const PersistentRuns&) = delete;

  // Whether a launch of that many blocks can be counted.
  static bool Fits(uint64_t num_blocks, uint32_t num_persistent_blocks) {
    return num_blocks + num_persistent_blocks < (uint64_t{1} << 31);
  }
  // The device's context must be current. Never waits. After an error nothing was put on the stream.
  // CUDA_ERROR_NOT_READY: more are in flight than can be counted, it has to be launched otherwise, and is still there.
  // `owner` may be null.
  CUresult Launch(CUstream stream, const PersistentForm& form, std::shared_ptr<RunsOwner> owner,
                  PendingLaunch&& launch);
  // Between the two no launch is asked to yield; Begin waits until none is interrupted (GatedQueues says why).
  void BeginContextCall(bool is_urgent);
  void EndContextCall();

  // Waits until no launch of `function` is in flight: it is about to be unloaded.
  void AwaitFunction(CUfunction function);

  PersistentRunCounts counts() const;

 private:
  struct InFlight {
    PersistentForm form;
    PendingLaunch launch;
    std::shared_ptr<RunsOwner> owner;
    CUdeviceptr control = 0;
    Mark run_ended;      // behind the last run
    uint64_t phase = 0;  // of the flag, when the last run was launched
  };

  PersistentRuns(const DriverTable& driver, CompletionSource& completions, CUcontext context, int device,
                 HighPriorityWatch* watch, std::function<void(CUresult)> on_failure, const Clock& clock, bool may_spin)
      : driver_(driver),
        completions_(completions),
        context_(context),
        watch_(watch, device, clock, may_spin),
        on_failure_(std::move(on_failure)),
        clock_(clock),
        slots_(driver) {}
  CUresult Open();
  void Watch();
  // `looked_at`: when there was no high-priority work yet.
  void Yield(TimePoint looked_at);
  void LowerFlag();
  // One that has stopped half-way goes on; `runs_through`: and does not yield any more.
  CUresult Resume(InFlight& run, bool runs_through);
  // One that has stopped half-way counts as complete.
  CUresult GiveUp(const InFlight& run);
  // Retires what is complete and continues what has stopped. Returns whether some launch has been interrupted and its
  // outcome is not known yet.
  bool Sweep(bool may_resume);
  bool IsFlagUp() const { return phase_ % 2 != 0; }
  CUresult ReadControl(const InFlight& run, device::PersistentControl* control);
  CUresult Run(InFlight& run, CUstream stream, CUdeviceptr flag);
  void RetireLocked(std::list<InFlight>::iterator run);

  const DriverTable& driver_;
  CompletionSource& completions_;
  const CUcontext context_;
  PollingWatch watch_;
  const std::function<void(CUresult)> on_failure_;
  const Clock& clock_;

  CUstream signal_ = nullptr;  // flag and control blocks; never behind a kernel
  CUstream resume_ = nullptr;  // continued launches
  CUdeviceptr flag_ = 0;       // and behind it a word that stays 0, for launches that run through
  void* read_back_ = nullptr;  // pinned: where control blocks are read to

  // Never held while a kernel is launched, which may take until the GPU has room, or anything is allocated.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ControlSlots slots_;               // guarded by mutex_, as all below
  std::list<InFlight> in_flight_;    // in the order of their launch
  bool is_any_interrupted_ = false;  // or may be: the flag was raised, and not all launches have been seen since
  uint32_t num_context_calls_ = 0;
  PersistentRunCounts counts_;
  // Counts the changes of the flag; odd: it is up. A run launched in another phase than the present one may have seen
  // it.
  uint64_t phase_ = 0;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace tally::server
