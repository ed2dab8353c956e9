#include "server/executor/executor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "scheduler/policy_list.h"
#include "server/executor/dispatch/policy_dispatch.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/executor_config.h"
#include "server/executor/issue/kernel_report.h"
#include "server/executor/session/executor_core.h"
#include "server/executor/session/session.h"

namespace tally::server {

namespace {

uint64_t OrHalfOfTheMachine(uint64_t bytes) {
  if (bytes != 0) return bytes;
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) / 2;
}

// Of a session or a user.
template <typename Limits>
HeldLimits HeldLimitsOf(const Limits& limits) {
  HeldLimits held{};
  held[static_cast<size_t>(Held::kLanes)] = limits.lanes;
  held[static_cast<size_t>(Held::kPinnedBytes)] = OrHalfOfTheMachine(limits.pinned_bytes);
  held[static_cast<size_t>(Held::kImageBytes)] = limits.image_bytes;
  held[static_cast<size_t>(Held::kOutputBytes)] = limits.output_bytes;
  return held;
}

}  // namespace

ExecutorCore::ExecutorCore(const DriverTable& table, std::unique_ptr<Devices> all_devices, const ExecutorConfig& config)
    : driver(table),
      devices(std::move(all_devices)),
      limits(config.limits),
      session_held_limits(HeldLimitsOf(config.limits)),
      user_held_limits(HeldLimitsOf(config.user_limits)) {}

namespace {

Result<std::unique_ptr<DispatchGate>> CreateGate(const ExecutorConfig& config, const DriverTable& driver,
                                                 Devices& devices) {
  if (config.activity_path.empty()) return std::make_unique<DispatchGate>();
  // Nobody waits for anybody, so nobody need be told.
  if (config.policy == "none") return std::make_unique<DispatchGate>();
  auto page = ActivityPage::Open(config.activity_path);
  if (!page) return std::unexpected(page.error());
  const bool is_auto = config.policy == scheduler::kAutoPolicy;  // until LeaveToTimeSlices
  const auto policy = scheduler::FindPolicy(is_auto ? scheduler::kLookAheadPolicy : config.policy);
  if (!policy) return std::unexpected(policy.error());
  static const SteadyClock clock;
  auto gate = CreatePolicyDispatch(driver, devices, std::move(*page), **policy, config.starvation_bound, clock);
  gate->Tune({.turnaround_threshold = config.turnaround_threshold});
  return gate;
}

// Policies that know no yielding run kernels as they are.
control::Transforms UsableTransforms(const ExecutorConfig& config) {
  const auto policy = scheduler::FindPolicy(config.policy);
  if (!policy || (*policy)->uses_variants || config.transforms == control::Transforms::kNone) return config.transforms;
  LOG_WARNING("policy '{}' runs kernels as they are: transforms are off", config.policy);
  return control::Transforms::kNone;
}

constexpr const char* kShutdownReason = "the executor is shutting down";
// Each may keep the reaper for a second. Who comes when there are so many finds its socket closed.
constexpr size_t kMaxRefused = 16;
// How often the reaper looks whether clients run their host functions, at least.
constexpr std::chrono::milliseconds kLongestLook{1000};

class ExecutorProcess final : public Executor, private ExecutorCore {
 public:
  ExecutorProcess(ExecutorConfig config, std::unique_ptr<LoadedDriver> loaded, std::unique_ptr<Devices> all_devices,
                  std::unique_ptr<HeldAddresses> addresses, std::unique_ptr<PrintfCapture> capture,
                  std::unique_ptr<DispatchGate> dispatch_gate)
      : ExecutorCore(loaded->table, std::move(all_devices), config),
        config_(std::move(config)),
        loaded_(std::move(loaded)) {
    held_addresses = std::move(addresses);
    device_output = std::make_unique<DeviceOutput>(std::move(capture));
    gate = std::move(dispatch_gate);
    const std::optional<ForcedForm> forced_form = ForcedForm::OfEnvironment();
    const control::Transforms transforms = forced_form ? control::Transforms::kAll : UsableTransforms(config_);
    if (transforms != control::Transforms::kNone) {
      variants = std::make_unique<VariantRegistry>(
          driver, *devices, gate->watch(), clock,
          VariantConfig{.transforms = transforms,
                        .is_software = loaded_->is_software,
                        .cache_directory = config_.cache_directory,
                        .turnaround_threshold = config_.turnaround_threshold,
                        .gates_rest_after = config_.gates_rest_after,
                        .forced_form = forced_form},
          [this](CUresult result) { ReportFault(result, "a kernel that had yielded could not be continued"); });
    }
    are_classes_mixed = config_.are_classes_mixed;
    wants_ptx = variants != nullptr || loaded_->is_software;
  }
  ~ExecutorProcess() override { Shutdown(); }
  // Before anything else is asked of it.
  Status Start() {
    auto reaper = StartThread("reaper", [this] { Reap(); });
    if (!reaper) return reaper.error();
    reaper_ = std::move(*reaper);
    return OkStatus();
  }

  Status AddSession(UniqueFd session_socket, SessionIdentity identity) override;
  std::vector<SessionSnapshot> Snapshot() const override;
  std::vector<RefusedFunction> RefusedFunctions() const override;
  Status SetPriority(uint64_t session_id, const control::ShareChange& change) override;
  Status Evict(uint64_t session_id, const std::string& reason) override;
  std::vector<KernelReport> Kernels() const override {
    return variants != nullptr ? variants->Report() : std::vector<KernelReport>();
  }
  void Tune(const scheduler::Tuning& tuning) override {
    if (variants != nullptr) variants->SetThreshold(tuning.turnaround_threshold);
    gate->Tune(tuning);
    const std::lock_guard lock(mutex_);
    for (const auto& [id, session] : sessions_) session->OnTuning(tuning);
  }
  void ExpectSuspension(int device, bool is_expected) override;
  void LeaveToTimeSlices(bool is_left) override { gate->LeaveToTimeSlices(is_left); }
  HighPriorityWatch* high_priority_watch() override { return gate->watch(); }
  bool faulted() const override { return fault() != CUDA_SUCCESS; }
  const std::string& driver_description() const override { return loaded_->description; }
  bool is_software() const override { return loaded_->is_software; }
  int num_devices() const override { return devices->count(); }
  void Shutdown() override;

  void ReportFault(CUresult result, const std::string& what) override;
  void ReportCaution() override {
    if (config_.on_caution) config_.on_caution();
  }

 private:
  void OnSessionEnd(const SessionEnd& end);
  // Of which a mark has told. No program need have asked: all of them may sleep.
  void ReportLostContexts();
  void Reap();

  const ExecutorConfig config_;
  const std::unique_ptr<LoadedDriver> loaded_;

  mutable std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;  // guarded by mutex_, like all below
  std::vector<std::unique_ptr<Session>> ended_;            // to be joined by the reaper
  std::vector<std::unique_ptr<Session>> refused_;          // without a thread; their clients are to be told
  std::condition_variable changed_;
  bool shutting_down_ = false;
  bool stop_reaper_ = false;
  std::thread reaper_;
};

void ExecutorProcess::ExpectSuspension(int device, bool is_expected) {
  gate->ExpectSuspension(device, is_expected);
  if (variants != nullptr) variants->ExpectSuspension(device, is_expected);
}

Status ExecutorProcess::AddSession(UniqueFd session_socket, SessionIdentity identity) {
  const uint64_t id = identity.session_id;
  auto session = Session::Create(*this, std::move(session_socket), std::move(identity),
                                 [this](const SessionEnd& end) { OnSessionEnd(end); });
  if (!session) return session.error();
  const std::lock_guard lock(mutex_);
  if (shutting_down_) return Status(StatusCode::kUnavailable, "the executor is shutting down");
  if (faulted()) return Status(StatusCode::kUnavailable, "the executor's context is lost");
  if (sessions_.size() >= config_.max_sessions) {
    return Status(StatusCode::kResourceExhausted, fmt::format("{} sessions are open already", sessions_.size()));
  }
  const auto [place, is_new] = sessions_.try_emplace(id, nullptr);
  if (!is_new) return Status(StatusCode::kAlreadyExists, fmt::format("session {} exists", id));
  if (const Status started = (*session)->Start(); !started.ok()) {
    sessions_.erase(place);
    if (refused_.size() < kMaxRefused) refused_.push_back(std::move(*session));
    changed_.notify_all();
    return started;
  }
  place->second = std::move(*session);
  return OkStatus();
}

std::vector<SessionSnapshot> ExecutorProcess::Snapshot() const {
  const std::lock_guard lock(mutex_);
  std::vector<SessionSnapshot> result;
  result.reserve(sessions_.size());
  for (const auto& [id, session] : sessions_) result.push_back(session->Snapshot());
  return result;
}

std::vector<RefusedFunction> ExecutorProcess::RefusedFunctions() const {
  std::vector<RefusedFunction> result;
  for (uint32_t symbol = 0; symbol < kNumDriverSymbols; ++symbol) {
    if (const uint64_t count = refused_calls.count(symbol); count != 0) result.push_back({symbol, count});
  }
  return result;
}

Status ExecutorProcess::SetPriority(uint64_t session_id, const control::ShareChange& change) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end()) return Status(StatusCode::kNotFound, fmt::format("no session {}", session_id));
  found->second->SetPriority(change);
  return OkStatus();
}

Status ExecutorProcess::Evict(uint64_t session_id, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end()) return Status(StatusCode::kNotFound, fmt::format("no session {}", session_id));
  found->second->Evict(reason);
  return OkStatus();
}

void ExecutorProcess::ReportFault(CUresult result, const std::string& what) {
  int none = CUDA_SUCCESS;
  if (!fault_.compare_exchange_strong(none, static_cast<int>(result))) return;
  LOG_ERROR("the context is lost: {}", what);
  // First: a program that sees the error may start another one at once, which needs an executor that works.
  if (config_.on_fault) config_.on_fault(what);
  const std::lock_guard lock(mutex_);
  for (const auto& [id, session] : sessions_) session->SetStickyError(result);
}

void ExecutorProcess::OnSessionEnd(const SessionEnd& end) {
  if (end.evicted && end.reason != kShutdownReason) {
    LOG_WARNING("session {} ({}): {}", end.identity.session_id, end.identity.tenant_name, end.reason);
  }
  {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(end.identity.session_id);
    ended_.push_back(std::move(found->second));
    sessions_.erase(found);
    changed_.notify_all();
  }
  if (variants != nullptr) variants->SaveNews();
  // Last, so that whoever is told finds the session gone. The reaper joins this thread: Shutdown waits for it too.
  if (config_.on_session_end) config_.on_session_end(end);
}

void ExecutorProcess::ReportLostContexts() {
  for (int device = 0; device < devices->count(); ++device) {
    const CUresult error = devices->completions(device).TakeError();
    if (error != CUDA_SUCCESS) ReportFault(error, "work on the GPU has failed");
  }
}

void ExecutorProcess::Reap() {
  const auto look = std::min({kLongestLook, limits.host_function_timeout, limits.host_function_patience});
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait_for(lock, look, [&] { return stop_reaper_ || !ended_.empty() || !refused_.empty(); });
    const TimePoint now = clock.Now();
    for (const auto& [id, session] : sessions_) session->RequireHostFunctions(now);
    std::vector<std::unique_ptr<Session>> ended, refused;
    ended.swap(ended_);
    refused.swap(refused_);
    if (ended.empty() && refused.empty() && stop_reaper_) return;
    lock.unlock();
    ReportLostContexts();
    ended.clear();  // joins their threads, which have nothing left to do but return
    for (const auto& session : refused) session->Refuse();
    refused.clear();
    lock.lock();
  }
}

void ExecutorProcess::Shutdown() {
  {
    std::unique_lock lock(mutex_);
    if (stop_reaper_) return;
    shutting_down_ = true;
    gate->Open();
    for (const auto& [id, session] : sessions_) session->Evict(kShutdownReason);
    changed_.wait(lock, [&] { return sessions_.empty(); });
    stop_reaper_ = true;
    changed_.notify_all();
  }
  if (reaper_.joinable()) reaper_.join();
  if (variants != nullptr) variants->Shutdown();
  gate.reset();  // it waits for work of the contexts that go next
  devices->Release();
}

}  // namespace

Result<std::unique_ptr<Executor>> Executor::Create(ExecutorConfig config) {
  auto held_addresses = std::make_unique<HeldAddresses>();
  held_addresses->Hold();  // before the driver picks addresses
  std::unique_ptr<PrintfCapture> capture;
  if (config.capture_stdout) {
    auto created = PrintfCapture::Create();
    if (!created) return std::unexpected(created.error());
    capture = std::move(*created);
  }
  auto loaded = std::make_unique<LoadedDriver>();
  if (config.driver_table_for_testing != nullptr) {
    loaded->table = *config.driver_table_for_testing;
    loaded->description = "injected driver";
    loaded->is_software = true;
  } else {
    auto driver = LoadDriver(config.driver);
    if (!driver) return std::unexpected(driver.error());
    *loaded = std::move(*driver);
  }
  auto devices = Devices::Create(loaded->table, config.on_making_context);
  if (!devices) return std::unexpected(devices.error());
  auto gate = CreateGate(config, loaded->table, **devices);
  if (!gate) return std::unexpected(gate.error());
  LOG_INFO("domain '{}' on {}, {} device(s)", config.domain_name, loaded->description, (*devices)->count());
  auto executor = std::make_unique<ExecutorProcess>(std::move(config), std::move(loaded), std::move(*devices),
                                                    std::move(held_addresses), std::move(capture), std::move(*gate));
  if (const Status started = executor->Start(); !started.ok()) return std::unexpected(started);
  return executor;
}

}  // namespace tally::server
