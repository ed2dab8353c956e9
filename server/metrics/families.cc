#include "server/metrics/families.h"

#include <fmt/format.h>

#include <chrono>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "proto/shm/handshake_abi.h"
#include "scheduler/slo_feedback.h"
#include "server/coverage.h"
#include "server/daemon/version.h"
#include "server/metrics/metrics_list.h"

namespace tally::server {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

const char* StateName(ExecutorState state) {
  switch (state) {
    case ExecutorState::kStarting:
    case ExecutorState::kDisconnected:
      return "starting";
    case ExecutorState::kServing:
      return "serving";
    case ExecutorState::kRetiring:
      return "retiring";
  }
  return "unknown";
}

prometheus::MetricType TypeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return prometheus::MetricType::Counter;
    case MetricKind::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricKind::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

class FamilySet {
 public:
  FamilySet() : families_(MetricsList().size()) {
    for (size_t i = 0; i < families_.size(); ++i) {
      const MetricRow& row = MetricsList()[i];
      families_[i].name = row.name;
      families_[i].help = row.sentence;
      families_[i].type = TypeOf(row.kind);
    }
  }

  void Add(Metric metric, const Labels& labels, double value) {
    prometheus::ClientMetric sample;
    for (const auto& [name, text] : labels) sample.label.push_back({name, text});
    if (RowOf(metric).kind == MetricKind::kCounter) {
      sample.counter.value = value;
    } else {
      sample.gauge.value = value;
    }
    families_[static_cast<size_t>(metric)].metric.push_back(std::move(sample));
  }

  // `counts`: by bucket, one more than `bounds_ns`.
  void AddHistogram(Metric metric, const Labels& labels, std::span<const uint64_t> bounds_ns,
                    std::span<const uint64_t> counts, uint64_t sum_ns) {
    prometheus::ClientMetric sample;
    for (const auto& [name, text] : labels) sample.label.push_back({name, text});
    uint64_t cumulative = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      cumulative += counts[i];
      const double bound =
          i < bounds_ns.size() ? static_cast<double>(bounds_ns[i]) * 1e-9 : std::numeric_limits<double>::infinity();
      sample.histogram.bucket.push_back({cumulative, bound});
    }
    sample.histogram.sample_count = cumulative;
    sample.histogram.sample_sum = static_cast<double>(sum_ns) * 1e-9;
    families_[static_cast<size_t>(metric)].metric.push_back(std::move(sample));
  }

  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  std::vector<prometheus::MetricFamily> families_;
};

void AddTenants(const Overview& overview, FamilySet& set) {
  for (const auto& [tenant, figures] : overview.tenants) {
    const Labels labels = {{"tenant", tenant.name}, {"uid", std::to_string(tenant.uid)}};
    auto add = [&](Metric metric, uint64_t value) { set.Add(metric, labels, static_cast<double>(value)); };
    auto add_copies = [&](const char* direction, uint64_t bytes) {
      Labels more = labels;
      more.emplace_back("direction", direction);
      set.Add(Metric::kTenantCopiedBytes, more, static_cast<double>(bytes));
    };
    add(Metric::kTenantKernelLaunches, figures.kernel_launches);
    add(Metric::kTenantGraphLaunches, figures.graph_launches);
    add_copies("host_to_device", figures.host_to_device_bytes);
    add_copies("device_to_host", figures.device_to_host_bytes);
    add_copies("device_to_device", figures.device_to_device_bytes);
    add(Metric::kTenantDeviceMemoryBytes, figures.device_memory_bytes);
    add(Metric::kTenantPinnedMemoryBytes, figures.pinned_memory_bytes);
    add(Metric::kTenantRequests, figures.requests);
    add(Metric::kTenantRefusedCalls, figures.refused_calls);
    add(Metric::kTenantFailedCalls, figures.failed_calls);
    auto add_seconds = [&](Metric metric, uint64_t ns) { set.Add(metric, labels, static_cast<double>(ns) * 1e-9); };
    add_seconds(Metric::kTenantGpuSeconds, figures.gpu_time_ns);
    add(Metric::kTenantHeldLaunches, figures.held_launches);
    add_seconds(Metric::kTenantHeldSeconds, figures.held_ns);
    auto add_form = [&](const char* form, uint64_t launches) {
      Labels more = labels;
      more.emplace_back("form", form);
      set.Add(Metric::kTenantVariedLaunches, more, static_cast<double>(launches));
    };
    add_form("slices", figures.sliced_launches);
    add_form("workers", figures.worker_launches);
    add_form("gated", figures.gated_launches);
    add(Metric::kTenantYields, figures.yields);
    add(Metric::kTenantTimedYields, figures.timed_yields);
    auto add_phase = [&](const char* phase, uint64_t ns) {
      Labels more = labels;
      more.emplace_back("phase", phase);
      set.Add(Metric::kTenantYieldSeconds, more, static_cast<double>(ns) * 1e-9);
    };
    add_phase("seen", figures.yield_seen_ns);
    add_phase("written", figures.yield_written_ns);
    add_phase("left", figures.yield_left_ns);
    for (size_t i = 0; i < kNumCoverages; ++i) {
      const CoverageName name = NameOf(static_cast<Coverage>(i));
      Labels more = labels;
      more.emplace_back("by", name.by);
      more.emplace_back("reason", name.reason);
      set.Add(Metric::kTenantCoveredSeconds, more, static_cast<double>(figures.coverage_ns[i]) * 1e-9);
    }
    set.AddHistogram(Metric::kTenantStopSeconds, labels, control::kStopBoundsNs, figures.stops, figures.stop_ns);
    add(Metric::kTenantResumedLaunches, figures.resumed_launches);
    add(Metric::kTenantResumedBlocks, figures.resumed_blocks);
    add(Metric::kTenantSloRequests, figures.slo_requests);
  }
}

void AddObjective(const SessionRecord& record, FamilySet& set) {
  const control::SessionIdentity& identity = record.identity;
  if (identity.slo_latency_ns == 0) return;
  const auto seconds = [](uint64_t ns) { return static_cast<double>(ns) * 1e-9; };
  Labels labels = {{"tenant", identity.tenant_name},
                   {"uid", std::to_string(identity.uid)},
                   {"session", std::to_string(identity.session_id)}};
  set.Add(Metric::kSloCaution, labels,
          static_cast<double>(record.figures.slo_caution) / scheduler::SloFeedback::kSteps);
  labels.emplace_back("percentile", fmt::format("{}", identity.slo_percentile));
  set.Add(Metric::kSloObjective, labels, seconds(identity.slo_latency_ns));
  if (record.figures.slo_observed_ns != 0) {
    set.Add(Metric::kSloObserved, labels, seconds(record.figures.slo_observed_ns));
  }
}

void AddTuning(const scheduler::Tuning& tuning, FamilySet& set) {
  const auto add = [&](const char* time, std::chrono::nanoseconds value) {
    set.Add(Metric::kTuning, {{"time", time}}, std::chrono::duration<double>(value).count());
  };
  add("turnaround_threshold", tuning.turnaround_threshold);
  add("min_hold_off", tuning.min_hold_off);
  add("max_hold_off", tuning.max_hold_off);
  add("target_drain", tuning.target_drain);
}

void AddSessions(const Overview& overview, FamilySet& set) {
  std::map<std::pair<std::string, std::string>, int> sessions;  // by class and domain
  int num_stale = 0;
  for (const SessionRow& row : overview.sessions) {
    const auto priority_class = static_cast<shm::PriorityClass>(row.record.identity.priority_class);
    ++sessions[{PriorityClassName(priority_class), row.domain.Label()}];
    num_stale += row.record.is_stale ? 1 : 0;
    AddObjective(row.record, set);
  }
  for (const auto& [key, count] : sessions) {
    set.Add(Metric::kSessions, {{"class", key.first}, {"domain", key.second}}, count);
  }
  for (const auto& [function, count] : overview.refused_functions) {
    set.Add(Metric::kRefusedCalls, {{"function", function}}, static_cast<double>(count));
  }
  for (const auto& [reason, count] : overview.refused_sessions) {
    set.Add(Metric::kSessionsRefused, {{"reason", reason}}, static_cast<double>(count));
  }
  set.Add(Metric::kStaleSessions, {}, num_stale);
}

void AddExecutors(const Overview& overview, FamilySet& set) {
  std::map<std::pair<std::string, std::string>, int> executors;  // by domain and state
  for (const ExecutorRow& row : overview.executors) ++executors[{row.domain.Label(), StateName(row.state)}];
  for (const auto& [key, count] : executors) {
    set.Add(Metric::kExecutors, {{"domain", key.first}, {"state", key.second}}, count);
  }
  std::map<std::pair<std::string, std::string>, int> policies;  // by domain and name
  for (const ExecutorRow& row : overview.executors) {
    if (!row.policy_name.empty()) ++policies[{row.domain.Label(), row.policy_name}];
  }
  for (const auto& [key, count] : policies) {
    set.Add(Metric::kExecutorPolicy, {{"domain", key.first}, {"policy", key.second}}, count);
  }
  for (const ExecutorRow& row : overview.executors) {
    if (row.time_slices.num_groups == 0) continue;
    const Labels labels = {{"domain", row.domain.Label()}, {"pid", std::to_string(row.pid)}};
    set.Add(Metric::kExecutorTimeSlice, labels, static_cast<double>(row.time_slices.longest_us) * 1e-6);
    set.Add(Metric::kExecutorTimeSlicesRefused, labels, row.time_slices.num_refused);
    Labels with_state = labels;
    with_state.emplace_back("state", NameOf(row.time_slices.suspension));
    set.Add(Metric::kExecutorSuspension, with_state, 1);
    set.Add(Metric::kExecutorSuspensions, labels, static_cast<double>(row.time_slices.num_suspensions));
    set.Add(Metric::kExecutorStandstills, labels, static_cast<double>(row.time_slices.num_standstills));
    set.Add(Metric::kExecutorRefreshes, labels, static_cast<double>(row.time_slices.num_refreshes));
  }
  for (const auto& [domain, counters] : overview.domains) {
    const Labels labels = {{"domain", domain}};
    set.Add(Metric::kExecutorStarts, labels, static_cast<double>(counters.starts));
    set.Add(Metric::kExecutorFaults, labels, static_cast<double>(counters.faults));
    set.Add(Metric::kExecutorFailures, labels, static_cast<double>(counters.failures));
  }
}

}  // namespace

std::vector<prometheus::MetricFamily> MakeFamilies(const Overview& overview, const DaemonFacts& facts) {
  FamilySet set;
  AddTenants(overview, set);
  AddSessions(overview, set);
  AddExecutors(overview, set);
  if (facts.forced_switch) {
    set.Add(Metric::kForcedSwitch, {{"quantile", "0.5"}}, facts.forced_switch->p50_us * 1e-6);
    set.Add(Metric::kForcedSwitch, {{"quantile", "0.99"}}, facts.forced_switch->p99_us * 1e-6);
    set.Add(Metric::kTimeSlicesAct, {}, facts.forced_switch->acts ? 1 : 0);
  }
  set.Add(Metric::kUptimeSeconds, {}, std::chrono::duration<double>(facts.uptime).count());
  set.Add(Metric::kBuild,
          {{"version", std::string(kVersion)},
           {"protocol", std::to_string(shm::kProtocolVersion)},
           {"driver", facts.driver}},
          1);
  AddTuning(overview.tuning, set);
  return set.Take();
}

}  // namespace tally::server
