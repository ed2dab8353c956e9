// An executor without a driver, for tests of supervision: sessions that do nothing until their client hangs up.
//
// Same front desk (server/executor/executor.h) and same process around it as the real one, so what is tested is tallyd
// and tally-executor's main. Clients steer it by their tenant's name: "fault" loses the context as soon as it attaches,
// "all-figures" has done 1000 and more of everything, 1 more from row to row of proto/control/session_figures.h,
// "long-blocks" has a kernel with blocks that no gate ends in time, with "take-back" the driver (scripted_driver.h)
// does not accept time slices any more, "gpu-1" works on that GPU, and work of "endless" goes on when its client is
// gone.
// Environment: TALLY_SCRIPT_START=fail (no driver), hang (never ready), or a path (ready once that file is there); the
// launch counter of a session is its id; TALLY_SCRIPT_DEVICES: how many GPUs there are, 1 by default.
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/clock.h"
#include "scheduler/slo_feedback.h"
#include "server/executor/executor.h"
#include "server/executor/executor_config.h"
#include "server/executor/issue/kernel_report.h"
#include "tests/server/executor/process/scripted_driver.h"

namespace tally::server {
namespace {

class ScriptedExecutor final : public Executor {
 public:
  explicit ScriptedExecutor(ExecutorConfig config) : config_(std::move(config)) {}
  ~ScriptedExecutor() override { Shutdown(); }

  Status AddSession(UniqueFd session_socket, SessionIdentity identity) override {
    if (ScriptedDriver::IsScripted()) {
      const int device = DeviceOf(identity.tenant_name);
      config_.on_making_context(device);
      ScriptedDriver::MakeContext(device);
      config_.on_making_context(-1);
      if ((used_devices_.fetch_or(uint64_t{1} << device) >> device & 1) == 0) config_.on_device_used();
      if (identity.tenant_name == "take-back") ScriptedDriver::TakeBack();
    }
    std::lock_guard lock(mutex_);
    if (is_faulted_) return Status(StatusCode::kUnavailable, "faulted");
    const uint64_t id = identity.session_id;
    sessions_[id] = {identity, SteadyClock().Now()};
    const bool does_fault = identity.tenant_name == "fault";
    const bool has_long_blocks = identity.tenant_name == "long-blocks";
    threads_.emplace_back([this, id, does_fault, has_long_blocks, socket = std::move(session_socket)] {
      Serve(id, socket, does_fault, has_long_blocks);
    });
    return OkStatus();
  }

  std::vector<SessionSnapshot> Snapshot() const override {
    std::lock_guard lock(mutex_);
    std::vector<SessionSnapshot> snapshots;
    for (const auto& [id, session] : sessions_) snapshots.push_back(SnapshotOf(session));
    return snapshots;
  }

  std::vector<RefusedFunction> RefusedFunctions() const override { return {}; }

  Status SetPriority(uint64_t session_id, const control::ShareChange& change) override {
    std::lock_guard lock(mutex_);
    const auto found = sessions_.find(session_id);
    if (found == sessions_.end()) return Status(StatusCode::kNotFound, "no such session");
    if (found->second.identity.tenant_name == "stubborn") {
      return Status(StatusCode::kFailedPrecondition, "the context of this domain is fixed until it ends");
    }
    SessionIdentity& identity = found->second.identity;
    if (change.priority_class != shm::PriorityClass::kDefault) identity.priority_class = change.priority_class;
    identity.weight = change.weight.value_or(identity.weight);
    identity.level = change.level.value_or(identity.level);
    identity.turnaround = change.turnaround.value_or(identity.turnaround);
    return OkStatus();
  }

  std::vector<KernelReport> Kernels() const override {
    KernelReport report;
    report.kernel = "scripted";
    report.shape = {{2, 3, 4}, {32, 1, 1}, 16};
    report.num_launches = 5;
    report.gpu_time = std::chrono::microseconds(500);
    report.chosen.candidate = {scheduler::LaunchForm::kPersistentBlocks, 264};
    report.chosen.duration = std::chrono::microseconds(100);
    report.chosen.turnaround = threshold_;
    report.original_duration = std::chrono::microseconds(80);
    report.remark = held_devices_ != 0 ? "may hold the GPU" : is_left_to_time_slices_ ? "left to time slices" : "";
    return {report};
  }
  // One for each session with a window.
  std::vector<control::WindowShapeFigures> WindowShapes() const override {
    const std::lock_guard lock(mutex_);
    std::vector<control::WindowShapeFigures> shapes;
    for (const auto& [id, session] : sessions_) {
      if (session.identity.window == control::WindowMode::kOff) continue;
      shapes.push_back({id, 64, 16, 5, control::WindowWay::kGraph, 100 + id, 200'000, 80'000});
    }
    return shapes;
  }
  // One for each session whose graphs are launched in partitions.
  std::vector<control::GraphFigures> Graphs() const override {
    const std::lock_guard lock(mutex_);
    std::vector<control::GraphFigures> graphs;
    for (const auto& [id, session] : sessions_) {
      if (session.identity.graphs == control::GraphMode::kOff) continue;
      graphs.push_back(
          {id, 1, 500, 4, 2, 1, control::WholeReason::kNone, 100 + id, 90, 2'000'000, 2'010'000, 5, 1'500'000, 4096});
    }
    return graphs;
  }
  std::string DrawGraph(uint64_t session_id, uint32_t number) const override {
    const std::lock_guard lock(mutex_);
    return sessions_.contains(session_id) && number == 1 ? "digraph g {\n}\n" : "";
  }
  void Tune(const scheduler::Tuning& tuning) override { threshold_ = tuning.turnaround_threshold; }
  void ExpectDescheduling(int, bool) override {}
  void LeaveToTimeSlices(bool is_left) override { is_left_to_time_slices_ = is_left; }
  void TakePrecedence(uint64_t) override {}
  void NoteTimeSlices(const std::vector<std::chrono::microseconds>&) override {}
  void AllowHolding(uint64_t devices) override { held_devices_ = devices; }
  HighPriorityWatch* high_priority_watch() override { return nullptr; }
  Status Evict(uint64_t session_id, const std::string&) override {
    std::lock_guard lock(mutex_);
    evicted_.insert(session_id);
    return OkStatus();
  }
  bool faulted() const override { return is_faulted_; }
  const std::string& driver_description() const override { return description_; }
  bool is_software() const override { return !ScriptedDriver::IsScripted(); }
  int num_devices() const override {
    const char* const count = std::getenv("TALLY_SCRIPT_DEVICES");
    return count == nullptr ? 1 : std::atoi(count);
  }
  uint64_t used_devices() const override { return used_devices_; }
  uint32_t driver_version() const override { return 13000; }
  std::vector<control::LinkGpu> gpus() const override {
    control::LinkGpu gpu{};
    for (const auto& [place, byte] : {std::pair{0, 0x5c}, {1, 0x21}, {2, 0xed}, {15, 1}}) {
      gpu.uuid[place] = static_cast<uint8_t>(byte);
    }
    gpu.total_memory_bytes = uint64_t{80} << 30;
    gpu.capability = 90;
    std::snprintf(gpu.name, sizeof(gpu.name), "Scripted GPU");
    std::vector<control::LinkGpu> gpus(static_cast<size_t>(num_devices()), gpu);
    for (size_t i = 0; i < gpus.size(); ++i) {
      gpus[i].ordinal = static_cast<uint32_t>(i);
      gpus[i].uuid[15] = static_cast<uint8_t>(1 + i);
    }
    return gpus;
  }

  void Shutdown() override {
    is_ending_ = true;
    std::vector<std::thread> threads;
    {
      std::lock_guard lock(mutex_);
      threads.swap(threads_);
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Of a tenant that is called "gpu-1..." or the like that one, else the first.
  int DeviceOf(const std::string& tenant) const {
    const int device = tenant.starts_with("gpu-") ? tenant[4] - '0' : 0;
    return device >= 0 && device < num_devices() ? device : 0;
  }

 private:
  std::atomic<uint64_t> used_devices_{0};
  std::chrono::nanoseconds threshold_{31'600};  // on the executor's loop only, as below
  bool is_left_to_time_slices_ = false;
  uint64_t held_devices_ = 0;
  struct Session {
    SessionIdentity identity;
    TimePoint since;
    bool has_departed = false;
  };

  static SessionSnapshot SnapshotOf(const Session& session) {
    SessionSnapshot snapshot;
    snapshot.identity = session.identity;
    snapshot.age = SteadyClock().Now() - session.since;
    snapshot.has_departed = snapshot.is_draining = session.has_departed;
    snapshot.figures["kernel_launches"] = session.identity.session_id;
    snapshot.figures["host_to_device_bytes"] = 1000;
    snapshot.figures["device_memory_bytes"] = 4096;
    if (session.identity.tenant_name == "all-figures") {
      for (const control::Figure figure : control::kAllFigures) snapshot.figures[figure] = 1000 + figure.index();
    }
    if (session.identity.slo) snapshot.figures["slo_caution"] = scheduler::SloFeedback::kFirstStep;
    return snapshot;
  }

  void Serve(uint64_t id, const UniqueFd& socket, bool does_fault, bool has_long_blocks) {
    if (does_fault) {
      is_faulted_ = true;
      config_.on_fault("scripted fault");
    }
    if (has_long_blocks) config_.on_long_blocks(id, "scripted", std::chrono::microseconds(2940));
    pollfd state{socket.get(), POLLIN | POLLRDHUP, 0};
    while (!is_ending_ && !IsEvicted(id) &&
           (::poll(&state, 1, 20) <= 0 || (state.revents & (POLLHUP | POLLRDHUP)) == 0))
      continue;
    if (IsEndless(id)) {
      while (!is_ending_) ::usleep(10'000);
    }
    SessionEnd end;
    {
      std::lock_guard lock(mutex_);
      const auto found = sessions_.extract(id);
      end.identity = found.mapped().identity;
      end.last = SnapshotOf(found.mapped());
    }
    end.reason = "client closed the connection";
    config_.on_session_end(end);
  }

  // From now on that is seen.
  bool IsEndless(uint64_t id) {
    std::lock_guard lock(mutex_);
    Session& session = sessions_.at(id);
    return session.has_departed = session.identity.tenant_name == "endless";
  }

  bool IsEvicted(uint64_t id) const {
    std::lock_guard lock(mutex_);
    return evicted_.contains(id);
  }

  ExecutorConfig config_;
  std::string description_ = "scripted";
  std::atomic<bool> is_faulted_ = false;
  std::atomic<bool> is_ending_ = false;
  mutable std::mutex mutex_;
  std::map<uint64_t, Session> sessions_;
  std::set<uint64_t> evicted_;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<Executor>> Executor::Create(ExecutorConfig config) {
  const char* start = std::getenv("TALLY_SCRIPT_START");
  const std::string script = start != nullptr ? start : "";
  if (script == "fail") return Error(StatusCode::kUnavailable, "no driver here, says the script");
  if (script == "hang") ::pause();
  while (script.starts_with('/') && ::access(script.c_str(), F_OK) != 0) ::usleep(10'000);
  return std::make_unique<ScriptedExecutor>(std::move(config));
}

}  // namespace tally::server
