#include "server/executor/dispatch/policy_dispatch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "server/executor/dispatch/device_queue.h"
#include "server/executor/dispatch/high_priority_announcer.h"
#include "server/executor/dispatch/page_watch.h"
#include "server/executor/driver/devices.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {
namespace {

// A session has one launch waiting at a time, and its channel is back with the next in microseconds.
constexpr auto kExpectsBack = std::chrono::microseconds(100);

// The queues of all devices, made on first use.
class Queues {
 public:
  Queues(const DriverTable& driver, Devices& devices, ActivityPage& page, PageWatch& watch, const Clock& clock,
         const scheduler::PolicyRow& policy, std::chrono::nanoseconds starvation_bound)
      : driver_(driver),
        devices_(devices),
        page_(page),
        watch_(watch),
        clock_(clock),
        policy_(policy),
        starvation_bound_(starvation_bound) {}

  DeviceQueue& Of(int device) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<DeviceQueue>& queue = queues_[static_cast<size_t>(device)];
    if (queue == nullptr) {
      scheduler::PolicyConfig config;
      config.tuning = tuning_;
      config.expects_back = kExpectsBack;
      if (starvation_bound_.count() != 0) config.starvation_bound = starvation_bound_;
      queue = std::make_unique<DeviceQueue>(driver_, devices_.completions(device), page_, watch_, passes_all_, clock_,
                                            device, policy_, policy_.create(config));
      queue->Tune(tuning_);
      queue->ExpectDescheduling(is_descheduling_expected_[static_cast<size_t>(device)]);
    }
    return *queue;
  }
  template <typename F>
  void ForEach(const F& action) {
    const std::lock_guard lock(mutex_);
    for (const auto& queue : queues_) {
      if (queue != nullptr) action(*queue);
    }
  }
  void Tune(const scheduler::Tuning& tuning) {
    const std::lock_guard lock(mutex_);
    tuning_ = tuning;
    for (const auto& queue : queues_) {
      if (queue != nullptr) queue->Tune(tuning_);
    }
  }
  void ExpectDescheduling(int device, bool is_expected) {
    const std::lock_guard lock(mutex_);
    is_descheduling_expected_[static_cast<size_t>(device)] = is_expected;
    const std::unique_ptr<DeviceQueue>& queue = queues_[static_cast<size_t>(device)];
    if (queue != nullptr) queue->ExpectDescheduling(is_expected);
  }
  // Nobody asks the policy any more, or does again: the policy that passes everything need not be asked.
  void PassAll(bool passes_all) {
    passes_all_ = passes_all;
    ForEach([](DeviceQueue& queue) { queue.WakeAll(); });
  }
  bool passes_all() const { return passes_all_.load(std::memory_order_relaxed); }

 private:
  const DriverTable& driver_;
  Devices& devices_;
  ActivityPage& page_;
  PageWatch& watch_;
  const Clock& clock_;
  const scheduler::PolicyRow& policy_;
  const std::chrono::nanoseconds starvation_bound_;  // zero: none
  std::atomic<bool> passes_all_{false};
  std::mutex mutex_;
  scheduler::Tuning tuning_;  // guarded by mutex_, as all below
  std::array<bool, shm::kActivityDevices> is_descheduling_expected_{};
  std::array<std::unique_ptr<DeviceQueue>, shm::kActivityDevices> queues_;  // entries stay
};

// Which levels the high-priority sessions of this executor have. Thread-safe.
class Levels {
 public:
  void Add(const scheduler::TenantShare& share) { Count(share, 1); }
  void Remove(const scheduler::TenantShare& share) { Count(share, -1); }
  // Otherwise nobody need wait for anybody.
  bool are_several() const { return are_several_.load(std::memory_order_relaxed); }

 private:
  void Count(const scheduler::TenantShare& share, int change) {
    if (share.tenant_class != scheduler::TenantClass::kHighPriority) return;
    const std::lock_guard lock(mutex_);
    num_sessions_[share.level] += change;
    are_several_ = std::count_if(num_sessions_.begin(), num_sessions_.end(), [](int n) { return n != 0; }) > 1;
  }
  std::mutex mutex_;
  std::array<int, scheduler::kNumLevels> num_sessions_{};  // guarded by mutex_
  std::atomic<bool> are_several_{false};
};

// A session, with its members of the queues of the devices that it has used.
class PolicyTenant final : public AdmissionTenant {
 public:
  PolicyTenant(Queues& queues, Levels& levels, const HighPriorityAnnouncer& announcer,
               const scheduler::TenantShare& share)
      : queues_(queues), levels_(levels), announcer_(announcer), share_(share) {
    levels_.Add(share_);
  }
  ~PolicyTenant() override {
    Remove();
    levels_.Remove(share_);
  }

  void SetShare(const scheduler::TenantShare& share) override {
    const std::lock_guard lock(mutex_);
    levels_.Add(share);
    levels_.Remove(share_);
    share_ = share;
    for (size_t device = 0; device < members_.size(); ++device) {
      DeviceQueue::Member* member = members_[device].load();
      if (member != nullptr) queues_.Of(static_cast<int>(device)).Change(*member, share);
    }
  }
  void Leave() override {
    AdmissionTenant::Leave();
    queues_.ForEach([](DeviceQueue& queue) { queue.WakeAll(); });
  }

  void OnRequest(std::chrono::nanoseconds took) override {
    // Else both ways are the same, and what they say of each other would stand in the way when they are not.
    if (announcer_.WouldHoldAnywhere()) hold_choice_.OnRequest(took, figures);
    has_waited_.store(true, std::memory_order_relaxed);
  }
  // Of a launch that it is to make now.
  HighPriorityAnnouncer::Launching Launching() {
    const bool begins_request = has_waited_.load(std::memory_order_relaxed);
    if (begins_request) has_waited_.store(false, std::memory_order_relaxed);
    return {begins_request, hold_choice_.holds(), figures};
  }

  void End() override { Remove(); }

  DeviceQueue::Member& On(int device) {
    std::atomic<DeviceQueue::Member*>& member = members_[static_cast<size_t>(device)];
    if (DeviceQueue::Member* known = member.load(std::memory_order_acquire); known != nullptr) return *known;
    const std::lock_guard lock(mutex_);
    if (member.load() == nullptr) member = queues_.Of(device).Add(*this, share_).release();
    return *member.load();
  }

 private:
  void Remove() {
    const std::lock_guard lock(mutex_);
    for (size_t device = 0; device < members_.size(); ++device) {
      const std::unique_ptr<DeviceQueue::Member> member(members_[device].exchange(nullptr));
      if (member != nullptr) queues_.Of(static_cast<int>(device)).Remove(*member);
    }
  }

  Queues& queues_;
  Levels& levels_;
  const HighPriorityAnnouncer& announcer_;
  HoldChoice hold_choice_;
  std::atomic<bool> has_waited_{false};  // for its last request, and launched nothing since
  std::mutex mutex_;
  scheduler::TenantShare share_;                                                    // guarded by mutex_
  std::array<std::atomic<DeviceQueue::Member*>, shm::kActivityDevices> members_{};  // made under mutex_, owned
};

class PolicyDispatch final : public Admission {
 public:
  PolicyDispatch(const DriverTable& driver, Devices& devices, std::unique_ptr<ActivityPage> page,
                 const scheduler::PolicyRow& policy, std::chrono::nanoseconds starvation_bound, const Clock& clock,
                 bool may_hold)
      : policy_(policy),
        page_(std::move(page)),
        watch_(*page_, policy.minds_hold_off, clock),
        announcer_(driver, devices, *page_, clock, may_hold),
        queues_(driver, devices, *page_, watch_, clock, policy, starvation_bound) {}

  std::unique_ptr<AdmissionTenant> AddTenant(const scheduler::TenantShare& share) override {
    return std::make_unique<PolicyTenant>(queues_, levels_, announcer_, share);
  }

  DispatchPass BeforeDispatch(const DispatchPlace& place, const scheduler::LaunchAsked& asked) override {
    if (IsAnnounced(place)) {
      announcer_.BeforeDispatch(place.device, static_cast<PolicyTenant*>(place.tenant)->Launching());
      if (!policy_.minds_levels || !levels_.are_several()) return {};
    } else if (PassesAll(place.device)) {
      return {};
    }
    const DispatchPass pass = MemberOf(place).Enter(place, asked);
    if (!pass.may_go && IsAnnounced(place)) announcer_.AfterDispatch(place.device, place.stream);
    return pass;
  }
  void AfterDispatch(const DispatchPlace& place, const DispatchPass& pass) override {
    if (pass.is_noted()) MemberOf(place).Leave(place, pass);
    if (IsAnnounced(place)) announcer_.AfterDispatch(place.device, place.stream);
  }
  bool HoldsCopies(int device) const override { return !PassesAll(device); }
  void Tune(const scheduler::Tuning& tuning) override {
    announcer_.SetHoldOffBounds(tuning.min_hold_off, tuning.max_hold_off);
    queues_.Tune(tuning);
  }
  void ExpectDescheduling(int device, bool is_expected) override { queues_.ExpectDescheduling(device, is_expected); }
  void LeaveToTimeSlices(bool is_left) override { queues_.PassAll(is_left); }
  void AllowHolding(uint64_t devices) override { announcer_.AllowHolding(devices); }
  bool wants_requests() const override { return announcer_.may_hold(); }
  void Open() override {
    watch_.Open();
    queues_.ForEach([](DeviceQueue& queue) { queue.WakeAll(); });
  }
  HighPriorityWatch* watch() override { return &watch_; }

 private:
  bool IsAnnounced(const DispatchPlace& place) const { return place.is_high_priority && policy_.minds_class; }
  // Best-effort launches need not ask. Two loads.
  bool PassesAll(int device) const {
    return queues_.passes_all() ||
           (policy_.decides_beside_high_priority_only && !page_->HighPriorityPresent(static_cast<uint32_t>(device)));
  }
  static DeviceQueue::Member& MemberOf(const DispatchPlace& place) {
    return static_cast<PolicyTenant*>(place.tenant)->On(place.device);
  }

  const scheduler::PolicyRow& policy_;
  const std::unique_ptr<ActivityPage> page_;
  PageWatch watch_;
  HighPriorityAnnouncer announcer_;
  Queues queues_;
  Levels levels_;
};

}  // namespace

std::unique_ptr<Admission> CreatePolicyDispatch(const DriverTable& driver, Devices& devices,
                                                std::unique_ptr<ActivityPage> page, const scheduler::PolicyRow& policy,
                                                std::chrono::nanoseconds starvation_bound, const Clock& clock,
                                                bool may_hold) {
  return std::make_unique<PolicyDispatch>(driver, devices, std::move(page), policy, starvation_bound, clock, may_hold);
}

}  // namespace tally::server
