#include "bench/scheduler-sim/simulation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <queue>

#include "tests/scheduler/model_executor.h"

namespace tally::scheduler_sim {
namespace {

using scheduler::GpuModel;
using scheduler::ModelExecutor;
using scheduler::TenantClass;

class Simulation : public ModelExecutor::Observer {
 public:
  Simulation(const Trace& trace, const scheduler::PolicyRow& row, const SimulationOptions& options)
      : trace_(trace), row_(row), options_(options), policy_(row.create(options.policy)), executor_(*policy_, *this) {
    for (const TraceTenant& tenant : trace.tenants) {
      programs_.emplace_back();
      programs_.back().id = policy_->AddTenant(tenant.share, executor_.now());
    }
  }

  SimulationResult Run() {
    const TimePoint end = TimePoint{} + options_.end;
    for (uint32_t i = 0; i < programs_.size(); ++i) GoOn(i);
    executor_.Decide();
    for (;;) {
      // Each step may bring an earlier arrival.
      const TimePoint next = arrivals_.empty() ? end : std::min(arrivals_.top().at, end);
      if (executor_.Step(next)) continue;
      executor_.RunUntil(next);
      if (next == end) break;
      while (!arrivals_.empty() && arrivals_.top().at <= executor_.now()) {
        const uint32_t tenant = arrivals_.top().tenant;
        arrivals_.pop();
        programs_[tenant].is_timed = false;
        GoOn(tenant);
      }
      executor_.Decide();
    }
    return Summary(end);
  }

 private:
  struct Program {
    scheduler::TenantId id;
    size_t next = 0;
    bool is_waiting = false;  // a launch of it is not dispatched yet
    bool is_timed = false;    // it is among arrivals_
    int num_in_flight = 0;
    Nanoseconds used{0};
  };
  struct Arrival {
    TimePoint at;
    uint32_t tenant;
    bool operator>(const Arrival& other) const { return at > other.at; }
  };

  const TraceLaunch& LaunchOf(uint32_t tenant, size_t index) const { return trace_.tenants[tenant].launches[index]; }
  bool IsHigh(uint32_t tenant) const { return trace_.tenants[tenant].share.tenant_class == TenantClass::kHighPriority; }
  TimePoint StartOfRequest(uint32_t tenant, size_t index) const {
    while (index > 0 && LaunchOf(tenant, index - 1).request == LaunchOf(tenant, index).request) --index;
    return TimePoint{} + LaunchOf(tenant, index).at;
  }
  bool IsLastOfRequest(uint32_t tenant, size_t index) const {
    return index + 1 == trace_.tenants[tenant].launches.size() ||
           LaunchOf(tenant, index + 1).request != LaunchOf(tenant, index).request;
  }

  // The program makes its next launch, if it can.
  void GoOn(uint32_t index) {
    Program& program = programs_[index];
    const TraceTenant& tenant = trace_.tenants[index];
    if (program.is_waiting || program.is_timed || program.num_in_flight >= options_.depth) return;
    if (program.next == tenant.launches.size()) {
      if (!tenant.repeats) return;
      program.next = 0;
    }
    const TraceLaunch& launch = tenant.launches[program.next];
    const TimePoint at = TimePoint{} + launch.at;
    if (!tenant.repeats && at > executor_.now()) {
      program.is_timed = true;
      return arrivals_.push({at, index});
    }
    GpuModel::Work work;
    work.stream = index;
    work.duration = launch.duration;
    work.fill = launch.fill;
    work.turnaround = launch.turnaround;
    work.can_yield = row_.uses_variants && launch.turnaround > Nanoseconds(0) && !IsHigh(index);
    if (work.can_yield) {
      work.duration = Nanoseconds(std::llround(static_cast<double>(work.duration.count()) * options_.variant_cost));
    }
    program.is_waiting = true;
    executor_.Submit(program.id, work, work.duration, row_.uses_variants, uint64_t{index} << 32 | program.next++);
  }

  void OnDispatched(const ModelExecutor::Launch& launch, const scheduler::Decision&) override {
    ++result_.num_dispatches;
    if (launch.has_yielded) return;
    const auto tenant = static_cast<uint32_t>(launch.tag >> 32);
    programs_[tenant].is_waiting = false;
    ++programs_[tenant].num_in_flight;
    GoOn(tenant);
  }

  void OnEnded(const ModelExecutor::Launch& launch, const GpuModel::End& end) override {
    const auto tenant = static_cast<uint32_t>(launch.tag >> 32);
    const auto index = static_cast<size_t>(launch.tag & UINT32_MAX);
    Program& program = programs_[tenant];
    program.used += scheduler::GpuShareOf(end.gpu_time, launch.work.fill);
    if (end.has_yielded) {
      ++result_.num_yields;
      return;
    }
    --program.num_in_flight;
    if (IsHigh(tenant) && IsLastOfRequest(tenant, index)) {
      latencies_.push_back(executor_.now() - StartOfRequest(tenant, index));
    }
    if (IsHigh(tenant)) program_done_[tenant] = std::max(program_done_[tenant], index + 1);
    GoOn(tenant);
  }

  SimulationResult Summary(TimePoint end) {
    Nanoseconds high{0};
    Nanoseconds best_effort{0};
    double sum = 0;
    double sum_of_squares = 0;
    double num = 0;
    for (uint32_t i = 0; i < programs_.size(); ++i) {
      if (IsHigh(i)) {
        high += programs_[i].used;
        // Requests that have come and are not done: they have taken at least so long.
        const std::vector<TraceLaunch>& launches = trace_.tenants[i].launches;
        for (size_t launch = program_done_[i]; launch < launches.size() && TimePoint{} + launches[launch].at < end;
             ++launch) {
          if (!IsLastOfRequest(i, launch)) continue;
          latencies_.push_back(end - StartOfRequest(i, launch));
          ++result_.num_unfinished;
        }
        continue;
      }
      best_effort += programs_[i].used;
      const double part = static_cast<double>(programs_[i].used.count()) / trace_.tenants[i].share.weight;
      sum += part;
      sum_of_squares += part * part;
      ++num;
    }
    std::sort(latencies_.begin(), latencies_.end());
    result_.num_requests = latencies_.size();
    const auto at = [&](double part) {
      return latencies_.empty()
                 ? Nanoseconds(0)
                 : latencies_[static_cast<size_t>(std::ceil(part * static_cast<double>(latencies_.size()))) - 1];
    };
    result_.p50 = at(0.5);
    result_.p99 = at(0.99);
    result_.longest = at(1);
    const auto length = static_cast<double>(options_.end.count());
    result_.high_priority_share = static_cast<double>(high.count()) / length;
    result_.best_effort_share = static_cast<double>(best_effort.count()) / length;
    if (sum_of_squares > 0) result_.fairness = sum * sum / (num * sum_of_squares);
    return result_;
  }

  const Trace& trace_;
  const scheduler::PolicyRow& row_;
  const SimulationOptions& options_;
  const std::unique_ptr<scheduler::Policy> policy_;
  ModelExecutor executor_;
  std::vector<Program> programs_;
  std::vector<size_t> program_done_ = std::vector<size_t>(trace_.tenants.size());  // launches of high-priority tenants
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<Arrival>> arrivals_;
  std::vector<Nanoseconds> latencies_;
  SimulationResult result_;
};

}  // namespace

SimulationResult Simulate(const Trace& trace, const scheduler::PolicyRow& policy, const SimulationOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  SimulationResult result = Simulation(trace, policy, options).Run();
  result.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace tally::scheduler_sim
