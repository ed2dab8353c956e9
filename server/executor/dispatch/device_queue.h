// The best-effort launches of one device of this executor, on their way through a policy (scheduler/policy.h).
//
//   channel thread   Enter ------------------------------> Leave        Member: one session on this device
//                   | submitted       granted ^            | a mark behind the launch
//                   v                         |            v
//                 policy: Next() <------- completed launches (Collect)
//
// There is no thread of its own. A channel that has to wait looks after the device meanwhile: it collects what is
// complete and asks the policy again, or sleeps on the activity page while admission is closed. Of several that wait
// one of each class does so, the others sleep until they are granted, or until it is their turn to look. Nobody waits:
// nobody looks.
//
// A tenant that is alone passes: while no high-priority executor exists and no other session has launched here for a
// second, Enter is two loads and counts the launch. Nor do launches ask of which the policy has said that they may go
// (PolicyRow::lets_yielding_pass, Decision::num_unasked).
//
// Launches that can yield are, for the policy, in flight until they are complete: PersistentRuns asks them to yield and
// continues them by itself, by the same activity page.
//
// Thread-safe. The device's primary context must be current.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "scheduler/policy.h"
#include "scheduler/policy_list.h"
#include "server/executor/dispatch/activity_page.h"
#include "server/executor/dispatch/admission.h"
#include "server/executor/dispatch/launch_costs.h"
#include "server/executor/dispatch/page_watch.h"
#include "server/executor/driver/completion_source.h"

namespace tally::server {

class DeviceQueue {
 public:
  class Member {
   public:
    Member(DeviceQueue& queue, AdmissionTenant& tenant, uint64_t number)
        : queue_(queue), tenant_(tenant), number_(number) {
      if (queue.row_.minds_durations) costs_.emplace(queue.completions_, queue.device_, queue.watch_);
    }

    // By the holder of the session's sequencer, around each launch.
    DispatchPass Enter(const DispatchPlace& place, const scheduler::LaunchAsked& asked) {
      return queue_.Enter(*this, place, asked);
    }
    void Leave(const DispatchPlace& place, const DispatchPass& pass) { queue_.Leave(*this, place, pass); }

   private:
    friend class DeviceQueue;
    DeviceQueue& queue_;
    AdmissionTenant& tenant_;
    const uint64_t number_;             // unique; not 0
    std::optional<LaunchCosts> costs_;  // none: the policy does not ask
    uint32_t num_unasked_ = 0;          // launches that may pass; guarded by the session's sequencer
    scheduler::TenantId id_;            // guarded by the queue's mutex, as below
    size_t num_in_flight_ = 0;
    bool is_high_priority_ = false;
  };

  // `policy` is of that row. `passes_all`: launches need not ask any more, and who waits goes, once WakeAll is called.
  // All but the policy must outlive this.
  DeviceQueue(const DriverTable& driver, CompletionSource& completions, ActivityPage& page, PageWatch& watch,
              const std::atomic<bool>& passes_all, const Clock& clock, int device, const scheduler::PolicyRow& row,
              std::unique_ptr<scheduler::Policy> policy);
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  // `tenant` outlives the member.
  std::unique_ptr<Member> Add(AdmissionTenant& tenant, const scheduler::TenantShare& share);
  void Change(Member& member, const scheduler::TenantShare& share);
  // None of its channels is in Enter, nothing of it is on the GPU.
  void Remove(Member& member);

  // Lets all that wait look whether their client has left or the executor ends.
  void WakeAll();
  void Tune(const scheduler::Tuning& tuning);
  // As Policy's.
  void ExpectDescheduling(bool is_expected);

 private:
  DispatchPass Enter(Member& member, const DispatchPlace& place, const scheduler::LaunchAsked& asked);
  void Leave(Member& member, const DispatchPlace& place, const DispatchPass& pass);

  struct Waiter {
    Member* member = nullptr;
    bool is_high_priority = false;
    bool is_short = false;
    std::optional<scheduler::Decision> granted;
    std::condition_variable changed;
  };
  // A launch from its submission to its completion, at the index of its LaunchId.
  struct Record {
    enum class State : uint8_t { kFree, kWaiting, kLaunching, kLaunched };
    std::atomic<State> state{State::kFree};  // kLaunched is set without the mutex
    scheduler::LaunchId id;
    Member* member = nullptr;
    Waiter* waiter = nullptr;
    const LaunchCosts::Cost* cost = nullptr;  // null: nobody asks
    Mark done;                                // behind the launch; put before kLaunched
  };

  // Without a question, and unnoted.
  bool MayPass(Member& member, bool can_yield);
  bool MayPassAlone(Member& member, TimePoint now);
  // What the policy is told. `duration`: as was measured; zero: it was not.
  scheduler::LaunchAsked Complete(scheduler::LaunchAsked asked, CUstream stream,
                                  std::chrono::nanoseconds duration) const;
  // Until the policy lets it go, or it must not or need not wait any more.
  DispatchPass Ask(Member& member, const DispatchPlace& place, const scheduler::LaunchAsked& asked,
                   const LaunchCosts::Cost* cost);
  // Until it is granted or must stop.
  void Wait(std::unique_lock<std::mutex>& lock, Waiter& waiter);
  void LookAfter(std::unique_lock<std::mutex>& lock, Waiter& waiter);
  void Pause(std::unique_lock<std::mutex>& lock, const Waiter& waiter, int round);
  void Decide(TimePoint now);
  void Collect(TimePoint now);
  void Finish(Record& record, TimePoint now);
  bool MustStopWaiting(const Waiter& waiter) const;

  const DriverTable& driver_;
  ActivityPage& page_;
  PageWatch& watch_;
  const std::atomic<bool>& passes_all_;
  const Clock& clock_;
  const int device_;
  const scheduler::PolicyRow& row_;
  CompletionSource& completions_;
  std::atomic<uint64_t> alone_{0};            // number of the member that may pass; 0: none
  std::atomic<uint64_t> multiprocessors_{0};  // 0: not asked yet
  std::atomic<int64_t> turnaround_ns_;
  std::atomic<bool> is_descheduling_expected_{false};

  std::mutex mutex_;
  const std::unique_ptr<scheduler::Policy> policy_;  // guarded by mutex_, as all below
  std::deque<Record> records_;                       // never shrinks: references stay
  std::vector<uint32_t> in_flight_;                  // indices of records_, in the order of their dispatch
  std::vector<Waiter*> waiting_;
  // By one of the waiting, best-effort and high-priority: the former sleep while there is work of the latter.
  std::array<bool, 2> is_looked_after_{};
  size_t num_members_ = 0;
  uint64_t next_number_ = 1;
  uint64_t last_number_ = 0;       // of the member that launched last
  TimePoint last_change_of_it_{};  // when that was another one before
};

}  // namespace tally::server
