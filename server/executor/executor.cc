#include "server/executor/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "server/executor/executor_config.h"
#include "server/executor/executor_parts.h"
#include "server/executor/issue/kernel_report.h"
#include "server/executor/session/executor_core.h"
#include "server/executor/session/session.h"
#include "server/executor/session/sharing_door.h"

namespace tally::server {

namespace {

constexpr const char* kShutdownReason = "the executor is shutting down";
// Each may keep the reaper for a second. Who comes when there are so many finds its socket closed.
constexpr size_t kMaxRefused = 16;
// How often the reaper looks whether clients run their host functions, at least.
constexpr std::chrono::milliseconds kLongestLook{1000};

class ExecutorProcess final : public Executor, private ExecutorCore {
 public:
  ExecutorProcess(ExecutorConfig config, ExecutorParts parts)
      : ExecutorCore(std::move(parts), config.limits, config.user_limits, config.are_classes_mixed,
                     config.tenants_directory, config.doors, config.on_device_used, config.on_long_blocks),
        config_(std::move(config)) {
    context_fault->Tell([this](CUresult result, const std::string& what) { OnLost(result, what); });
  }
  ~ExecutorProcess() override { Shutdown(); }
  // Before anything else is asked of it.
  Status Start() {
    auto reaper = StartThread("reaper", [this] { Reap(); });
    if (!reaper) return reaper.error();
    reaper_ = std::move(*reaper);
    if (config_.doors.directory.empty()) return OkStatus();
    const Status opened = door_.Open();
    if (!opened.ok()) LOG_WARNING("other executors cannot open what is shared here: {}", opened.message());
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
  std::vector<control::WindowShapeFigures> WindowShapes() const override;
  std::vector<control::GraphFigures> Graphs() const override;
  std::string DrawGraph(uint64_t session_id, uint32_t number) const override;
  void Tune(const scheduler::Tuning& tuning) override {
    if (variants != nullptr) variants->SetThreshold(tuning.turnaround_threshold);
    admission->Tune(tuning);
    const std::lock_guard lock(mutex_);
    for (const auto& [id, session] : sessions_) session->OnTuning(tuning);
  }
  void ExpectDescheduling(int device, bool is_expected) override;
  void LeaveToTimeSlices(bool is_left) override { admission->LeaveToTimeSlices(is_left); }
  void TakePrecedence(uint64_t on_devices) override { notices.devices = on_devices; }
  void NoteTimeSlices(const std::vector<std::chrono::microseconds>& slices) override { time_slices.Set(slices); }
  void AllowHolding(uint64_t ordinals) override { admission->AllowHolding(ordinals); }
  HighPriorityWatch* high_priority_watch() override { return admission->watch(); }
  Status StartTrace(std::optional<uint32_t> uid) override { return trace.Start(uid); }
  Status EndTrace(int file) override { return WriteTrace(trace.Stop(), file); }
  void NoteInTrace(control::TraceKind kind, int device, TimePoint begin, TimePoint end) override {
    trace.Add(kind, device, begin, end);
  }
  bool faulted() const override { return fault() != CUDA_SUCCESS; }
  const std::string& driver_description() const override { return loaded_driver->description; }
  bool is_software() const override { return loaded_driver->is_software; }
  int num_devices() const override { return devices->count(); }
  uint64_t used_devices() const override { return ExecutorCore::used_devices.mask(); }
  uint32_t driver_version() const override { return DriverVersion(driver); }
  std::vector<control::LinkGpu> gpus() const override {
    std::vector<control::LinkGpu> gpus;
    for (int device = 0; device < devices->count(); ++device) gpus.push_back(devices->Outline(device));
    return gpus;
  }
  void Shutdown() override;

  void ReportThrottleLevel() override {
    if (config_.on_throttle_level) config_.on_throttle_level();
  }

 private:
  void OnLost(CUresult result, const std::string& what);
  void OnSessionEnd(const SessionEnd& end);
  // Of which a mark has told. No program need have asked: all of them may sleep.
  void ReportLostContexts();
  void Reap();

  const ExecutorConfig config_;

  mutable std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;  // guarded by mutex_, like all below
  std::vector<std::unique_ptr<Session>> ended_;            // to be joined by the reaper
  std::vector<std::unique_ptr<Session>> refused_;          // without a thread; their clients are to be told
  std::condition_variable changed_;
  bool shutting_down_ = false;
  bool stop_reaper_ = false;
  std::thread reaper_;
  SharingDoor door_{shared, config_.doors};
};

void ExecutorProcess::ExpectDescheduling(int device, bool is_expected) {
  admission->ExpectDescheduling(device, is_expected);
  if (variants != nullptr) variants->ExpectDescheduling(device, is_expected);
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

std::vector<control::GraphFigures> ExecutorProcess::Graphs() const {
  const std::lock_guard lock(mutex_);
  std::vector<control::GraphFigures> graphs;
  for (const auto& [id, session] : sessions_) {
    for (const GraphRow& row : session->Graphs()) {
      graphs.push_back(row.figures);
      graphs.back().session_id = id;
    }
  }
  return graphs;
}

std::string ExecutorProcess::DrawGraph(uint64_t session_id, uint32_t number) const {
  GraphRow found;
  {
    const std::lock_guard lock(mutex_);
    const auto session = sessions_.find(session_id);
    if (session == sessions_.end()) return {};
    for (GraphRow& row : session->second->Graphs()) {
      if (row.figures.number == number) found = std::move(row);
    }
  }
  if (found.spread.plan != nullptr) {
    return PlanPicture(*found.spread.plan,
                       found.spread.times != nullptr ? *found.spread.times : std::span<const StepTimes>());
  }
  return found.partitions != nullptr ? GraphPicture(*found.partitions) : "";
}

std::vector<control::WindowShapeFigures> ExecutorProcess::WindowShapes() const {
  const std::lock_guard lock(mutex_);
  std::vector<control::WindowShapeFigures> shapes;
  for (const auto& [id, session] : sessions_) {
    for (control::WindowShapeFigures& shape : session->WindowShapes()) {
      shape.session_id = id;
      shapes.push_back(shape);
    }
  }
  return shapes;
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

void ExecutorProcess::OnLost(CUresult result, const std::string& what) {
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
    door_.Close();
    admission->Open();
    for (const auto& [id, session] : sessions_) session->Evict(kShutdownReason);
    changed_.wait(lock, [&] { return sessions_.empty(); });
    stop_reaper_ = true;
    changed_.notify_all();
  }
  if (reaper_.joinable()) reaper_.join();
  (void)trace.Stop();
  if (variants != nullptr) variants->Shutdown();
  admission.reset();  // it waits for work of the contexts that go next
  devices->Release();
}

}  // namespace

Result<std::unique_ptr<Executor>> Executor::Create(ExecutorConfig config) {
  auto parts = MakeExecutorParts(config);
  if (!parts) return std::unexpected(parts.error());
  LOG_INFO("domain '{}' on {}, {} device(s)", config.domain_name, parts->driver->description, parts->devices->count());
  auto executor = std::make_unique<ExecutorProcess>(std::move(config), std::move(*parts));
  if (const Status started = executor->Start(); !started.ok()) return std::unexpected(started);
  return executor;
}

}  // namespace tally::server
