// The gated queues of one device, and the thread that stops them when high-priority work comes and lets them go on when
// it is over.
//
// Thread-safe, but for Stream, which is guarded like the stream it stands for.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "server/gpu/awake_watch.h"
#include "server/gpu/driver_table.h"
#include "server/variants/gated_queue.h"
#include "server/variants/worker_runs.h"

namespace tally::server {

class GatedQueues {
 public:
  // Launches that one stream may have in its queue: enough to keep the GPU busy, and no more to be made again than
  // that.
  static constexpr size_t kMostInFlight = 256;

  // `on_failure`: what was stopped cannot be continued; its stream will wait for ever. `watch` may be null: nobody has
  // priority. All outlive this. Null: this driver cannot do it. The context must be current.
  static std::unique_ptr<GatedQueues> Create(const DriverTable& driver, CUcontext context, int device,
                                             HighPriorityWatch* watch, std::function<void(CUresult)> on_failure);
  // Everything that is in flight is finished first.
  ~GatedQueues();
  GatedQueues(const GatedQueues&) = delete;
  GatedQueues& operator=(const GatedQueues&) = delete;

 private:
  struct Member {
    Member(GateControls& controls, CUstream stream, CUdeviceptr place, std::shared_ptr<WorkerOwner> its_owner)
        : queue(controls, stream, place), owner(std::move(its_owner)) {}
    GatedQueue queue;
    std::shared_ptr<WorkerOwner> owner;  // may be null
    bool is_closed = false;              // its stream is gone: nothing more comes
  };

 public:
  // A stream's end of its queue. The device's context must be current in every call.
  class Stream {
   public:
    Stream(GatedQueues& all, Member& member) : all_(all), member_(member) {}
    // The stream is about to be destroyed.
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // Puts it on the stream; waits while too much is in flight there. After an error nothing was put on the stream.
    CUresult Launch(GatedLaunch launch);
    // What comes next on the stream has no gate.
    CUresult Seal();

   private:
    GatedQueues& all_;
    Member& member_;
  };
  // Null: no memory. Ends before this.
  std::unique_ptr<Stream> Open(CUstream stream, std::shared_ptr<WorkerOwner> owner);

  // Waits until no launch of `function` is in flight: it is about to be unloaded.
  void AwaitFunction(CUfunction function);

  GatedCounts counts() const;

 private:
  GatedQueues(const DriverTable& driver, CUcontext context, int device, HighPriorityWatch* watch,
              std::function<void(CUresult)> on_failure)
      : driver_(driver),
        context_(context),
        watch_(watch, device),
        on_failure_(std::move(on_failure)),
        controls_(driver) {}
  CUresult Launch(Member& member, GatedLaunch launch);
  void AwaitRoom(Member& member, uint64_t num_numbers, std::unique_lock<std::mutex>& lock);
  CUresult StopLocked(Member& member);
  void Watch();
  // One look at all queues. Returns whether some stopped one could go on as soon as it has drained.
  bool Look(bool is_closed);
  bool LookAt(Member& member, bool is_closed);
  bool IsIdleLocked() const;

  const DriverTable& driver_;
  const CUcontext context_;
  AwakeWatch watch_;
  const std::function<void(CUresult)> on_failure_;
  const SteadyClock clock_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  GateControls controls_;  // guarded by mutex_, as all below
  std::list<std::unique_ptr<Member>> members_;
  bool is_closed_ = false;  // as the thread saw it last: what is launched now is stopped from the start
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace tally::server
