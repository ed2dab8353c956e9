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
#include <optional>
#include <thread>

#include "base/clock.h"
#include "server/executor/dispatch/polling_watch.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/gated_queue.h"
#include "server/executor/issue/persistent_runs.h"

namespace tally::server {

class GatedQueues {
 public:
  // Launches that one stream may have in its queue: enough to keep the GPU busy, and no more to be made again than
  // that.
  static constexpr size_t kMostInFlight = 256;
  // The same while it is stopped. Behind a marker they stay in the GPU channel, and one that is full blocks whoever
  // launches, with the driver's locks and ours.
  static constexpr size_t kMostWhileStopped = 64;
  // Streams that may wait for a stopped queue at one time. Such a stream keeps a GPU channel of the context, of which
  // there are 32 (CUDA_DEVICE_MAX_CONNECTIONS, domain_process.cc); when all wait, nothing gets through that could end
  // it (measured: docs/driver-waits.md). Half of them is left to what programs wait for.
  static constexpr size_t kMostWaiting = 16;

  // `on_failure`: what was stopped cannot be continued; its stream will wait for ever. `watch` may be null: nobody has
  // priority. `clock` is for how long something is waited for. All outlive this. Null: this driver cannot do it. The
  // context must be current.
  static std::unique_ptr<GatedQueues> Create(const DriverTable& driver, CompletionSource& completions,
                                             CUcontext context, int device, HighPriorityWatch* watch,
                                             std::function<void(CUresult)> on_failure, const Clock& clock);
  // Everything that is in flight is finished first.
  ~GatedQueues();
  GatedQueues(const GatedQueues&) = delete;
  GatedQueues& operator=(const GatedQueues&) = delete;

 private:
  struct Member {
    Member(GateControls& controls, CUstream stream, CUdeviceptr place, std::shared_ptr<RunsOwner> its_owner)
        : queue(controls, stream, place), owner(std::move(its_owner)) {}
    // A stop whose end is yet to be seen.
    struct Leaving {
      TimePoint announced_at, seen_at, written_at;
    };
    GatedQueue queue;
    std::shared_ptr<RunsOwner> owner;  // may be null
    std::optional<Leaving> leaving;
    bool is_closed = false;  // its stream is gone: nothing more comes
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
    CUresult Launch(const GatedForm& form, PendingLaunch&& launch);
    // Whether this would be put behind gated launches, as one. If not, Seal and hand it to the driver.
    bool Takes(const Transfer& transfer) const;
    CUresult Put(const Transfer& transfer);
    // What comes next on the stream has no gate. In an executor with high-priority work this waits for what has.
    CUresult Seal();

   private:
    GatedQueues& all_;
    Member& member_;
  };
  // Null: no memory. Ends before this.
  std::unique_ptr<Stream> Open(CUstream stream, std::shared_ptr<RunsOwner> owner);

  // Between the two no queue is stopped; Begin waits until none is. For calls of the driver that may wait for the whole
  // context, with its locks held: behind a stopped queue they would wait for what needs these locks to go on.
  // `is_urgent`: what is stopped goes on at once, whatever high-priority work there is.
  void BeginContextCall(bool is_urgent);
  void EndContextCall();
  // The same, as long as this is there.
  class ContextCall {
   public:
    explicit ContextCall(GatedQueues& queues) : queues_(queues) { queues_.BeginContextCall(/*is_urgent=*/false); }
    ~ContextCall() { queues_.EndContextCall(); }
    ContextCall(const ContextCall&) = delete;
    ContextCall& operator=(const ContextCall&) = delete;

   private:
    GatedQueues& queues_;
  };

  // Waits until no launch of `function` is in flight: it is about to be unloaded.
  void AwaitFunction(CUfunction function);

  GatedCounts counts() const;
  // A number that is the same at two moments only if no queue was stopped between; none while one is.
  std::optional<uint64_t> OpenPhase() const;

 private:
  GatedQueues(const DriverTable& driver, CompletionSource& completions, CUcontext context, int device,
              HighPriorityWatch* watch, std::function<void(CUresult)> on_failure, const Clock& clock)
      : driver_(driver),
        context_(context),
        watch_(watch, device, clock),
        on_failure_(std::move(on_failure)),
        clock_(clock),
        controls_(driver, completions) {}
  CUresult Launch(Member& member, const GatedForm& form, PendingLaunch&& launch);
  void AwaitRoom(Member& member, uint64_t num_numbers, std::unique_lock<std::mutex>& lock);
  // Until all launches have run, or for some time while they could.
  void AwaitEnd(Member& member, std::unique_lock<std::mutex>& lock);
  CUresult StopLocked(Member& member, TimePoint seen_at);
  void Watch();
  struct Looked {
    bool is_any_open = false;     // some stopped queue could go on as soon as it has left
    bool is_any_leaving = false;  // when one has left is to be measured
    bool is_kept_open = false;    // it would be closed but for a call that waits for the context
  };
  // One look at all queues. `seen_at`: when it was seen whether it is closed.
  Looked Look(bool is_closed, TimePoint seen_at);
  void LookAt(Member& member, bool is_closed, TimePoint seen_at, Looked* looked);
  // Whether it is to be asked again.
  bool IsLeaving(Member& member);
  bool IsIdleLocked() const;
  bool IsAnyStoppedLocked() const;
  // Whether one more stream may wait for a stopped queue.
  bool MayWaitLocked() const;
  // Whether this queue may be stopped, with what waits behind it.
  bool MayStopLocked(const GatedQueue& queue) const { return !queue.has_marker() || MayWaitLocked(); }

  const DriverTable& driver_;
  const CUcontext context_;
  PollingWatch watch_;
  const std::function<void(CUresult)> on_failure_;
  const Clock& clock_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  GateControls controls_;  // guarded by mutex_, as all below
  std::list<std::unique_ptr<Member>> members_;
  bool is_closed_ = false;  // as the thread saw it last: what is launched now is stopped from the start
  uint64_t num_times_stopped_ = 0;
  uint32_t num_context_calls_ = 0;
  bool is_stopping_ = false;
  TimePoint looked_at_{};  // when there was no high-priority work, and a launch that it could have stopped
  std::thread thread_;
};

}  // namespace tally::server
