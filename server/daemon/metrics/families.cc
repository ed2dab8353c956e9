#include "server/daemon/metrics/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "proto/control/preemptibility.h"
#include "proto/control/session_figures.h"
#include "proto/control/version.h"
#include "proto/shm/handshake_abi.h"
#include "server/daemon/metrics/metrics_list.h"

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
    case ExecutorState::kLeaving:
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

bool IsTime(control::Figure figure) { return std::string_view(figure.row().family.unit) == "seconds"; }

// Of the values as many as the figure's family has labels.
Labels LabelsOf(control::Figure figure, const std::vector<std::string>& values) {
  Labels labels;
  std::string_view rest = figure.row().family.labels;
  for (size_t i = 0; i < values.size() && !rest.empty(); ++i) {
    const size_t end = std::min(rest.find(", "), rest.size());
    labels.emplace_back(rest.substr(0, end), values[i]);
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
  return labels;
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

  void Add(Metric metric, const Labels& labels, double value) { Add(IndexOf(metric), labels, value); }

  // `label_values`: of the family's labels, in their order.
  void Add(control::Figure figure, const std::vector<std::string>& label_values, uint64_t value) {
    const auto index = IndexOf(figure);
    if (!index) return;
    const double one = IsTime(figure) ? 1e9 : static_cast<double>(figure.row().one);
    Add(*index, LabelsOf(figure, label_values), static_cast<double>(value) / one);
  }

  // `counts`: by bucket, one more than `bounds_ns`.
  void AddHistogram(control::Figure figure, const std::vector<std::string>& label_values,
                    std::span<const uint64_t> bounds_ns, std::span<const uint64_t> counts, uint64_t sum_ns) {
    prometheus::ClientMetric sample;
    for (const auto& [name, text] : LabelsOf(figure, label_values)) sample.label.push_back({name, text});
    uint64_t cumulative = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      cumulative += counts[i];
      const double bound =
          i < bounds_ns.size() ? static_cast<double>(bounds_ns[i]) * 1e-9 : std::numeric_limits<double>::infinity();
      sample.histogram.bucket.push_back({cumulative, bound});
    }
    sample.histogram.sample_count = cumulative;
    sample.histogram.sample_sum = static_cast<double>(sum_ns) * 1e-9;
    families_[*IndexOf(figure)].metric.push_back(std::move(sample));
  }

  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  void Add(size_t index, const Labels& labels, double value) {
    prometheus::ClientMetric sample;
    for (const auto& [name, text] : labels) sample.label.push_back({name, text});
    if (MetricsList()[index].kind == MetricKind::kCounter) {
      sample.counter.value = value;
    } else {
      sample.gauge.value = value;
    }
    families_[index].metric.push_back(std::move(sample));
  }

  std::vector<prometheus::MetricFamily> families_;
};

// No user's number is a word: a program cannot give itself a name by which it counts as a tenant with a grant.
std::string UidLabelOf(const TenantKey& tenant) { return tenant.has_grant ? "grant" : std::to_string(tenant.uid); }

void AddTenant(const TenantKey& tenant, const control::SessionFigures& figures, const std::vector<std::string>& gpus,
               FamilySet& set) {
  const std::vector<std::string> labels = {tenant.name, UidLabelOf(tenant)};
  for (const control::Figure figure : control::kAllFigures) {
    const control::FigureRow& row = figure.row();
    if (row.kind == control::FigureKind::kOfObjective) continue;
    const auto entries = figures.entries(figure);
    switch (row.entries) {
      case control::FigureEntries::kOne:
        set.Add(figure, {labels[0], labels[1], row.label}, entries[0]);
        break;
      case control::FigureEntries::kByPreemptibility:
        for (size_t i = 0; i < entries.size(); ++i) {
          const control::PreemptibilityName name = control::NameOf(static_cast<control::Preemptibility>(i));
          set.Add(figure, {labels[0], labels[1], name.by, name.reason}, entries[i]);
        }
        break;
      case control::FigureEntries::kByStopTime:
        set.AddHistogram(figure, labels, control::kStopBoundsNs, entries, figures["stop_ns"]);
        break;
      case control::FigureEntries::kByGpu:
        for (size_t i = 0; i < std::min(gpus.size(), control::kMostGpus); ++i) {
          for (const auto priority_class : {shm::PriorityClass::kBestEffort, shm::PriorityClass::kHighPriority}) {
            const bool is_high_priority = priority_class == shm::PriorityClass::kHighPriority;
            set.Add(figure, {labels[0], labels[1], gpus[i], PriorityClassName(priority_class)},
                    entries[control::GpuEntry(i, is_high_priority)]);
          }
        }
        break;
      default:
        // Most tenants never have a window: half a hundred zeros each would be most of the page.
        if (std::ranges::all_of(entries, [](uint64_t entry) { return entry == 0; })) break;
        for (size_t i = 0; i < entries.size(); ++i) {
          set.Add(figure, {labels[0], labels[1], control::EntryNames(row.entries)[i]}, entries[i]);
        }
        break;
    }
  }
}

void AddObjective(const SessionRecord& record, FamilySet& set) {
  const control::SessionIdentity& identity = record.identity;
  if (identity.slo_latency_ns == 0) return;
  const std::vector<std::string> labels = {identity.tenant_name, UidLabelOf(TenantKeyOf(identity)),
                                           std::to_string(identity.session_id),
                                           fmt::format("{}", identity.slo_percentile)};
  set.Add(Metric::kSloObjective,
          {{"tenant", labels[0]}, {"uid", labels[1]}, {"session", labels[2]}, {"percentile", labels[3]}},
          static_cast<double>(identity.slo_latency_ns) * 1e-9);
  for (const control::Figure figure : control::kAllFigures) {
    if (figure.row().kind != control::FigureKind::kOfObjective) continue;
    const bool is_known = !IsTime(figure) || record.figures[figure] != 0;
    if (is_known) set.Add(figure, labels, record.figures[figure]);
  }
}

void AddGrants(const Overview& overview, FamilySet& set) {
  for (const GrantRow& row : overview.grants) {
    const GrantSpec& spec = row.grant.spec;
    set.Add(Metric::kGrant,
            {{"tenant", spec.tenant},
             {"class", PriorityClassName(spec.ceiling)},
             {"domain_policy", DomainPolicyName(spec.domain_policy)},
             {"namespace", spec.label_namespace},
             {"pod", spec.pod},
             {"container", spec.container}},
            1);
    set.Add(Metric::kGrantSessions, {{"tenant", spec.tenant}}, static_cast<double>(row.num_sessions));
  }
  for (const auto& [key, count] : overview.refused_by_grants) {
    set.Add(Metric::kGrantSessionsRefused, {{"tenant", key.first}, {"reason", key.second}}, static_cast<double>(count));
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

void AddProcess(const ProcessFigures& process, FamilySet& set) {
  set.Add(Metric::kProcessCpuSeconds, {}, process.cpu_seconds);
  set.Add(Metric::kProcessStartTime, {}, process.start_time_seconds);
  set.Add(Metric::kProcessVirtualMemory, {}, static_cast<double>(process.virtual_memory_bytes));
  set.Add(Metric::kProcessResidentMemory, {}, static_cast<double>(process.resident_memory_bytes));
  set.Add(Metric::kProcessOpenFds, {}, static_cast<double>(process.num_open_fds));
  set.Add(Metric::kProcessMaxFds, {}, static_cast<double>(process.most_fds));
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
    with_state.emplace_back("state", NameOf(row.time_slices.descheduling));
    set.Add(Metric::kExecutorDescheduling, with_state, 1);
    set.Add(Metric::kExecutorDeschedulings, labels, static_cast<double>(row.time_slices.num_deschedulings));
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
  for (const auto& [tenant, figures] : overview.tenants) AddTenant(tenant, figures, overview.gpus, set);
  AddSessions(overview, set);
  AddGrants(overview, set);
  AddExecutors(overview, set);
  if (facts.forced_switch) {
    set.Add(Metric::kForcedSwitch, {{"percentile", "50"}}, facts.forced_switch->p50_us * 1e-6);
    set.Add(Metric::kForcedSwitch, {{"percentile", "99"}}, facts.forced_switch->p99_us * 1e-6);
    set.Add(Metric::kTimeSlicesAct, {}, facts.forced_switch->acts ? 1 : 0);
  }
  set.Add(Metric::kUptimeSeconds, {}, std::chrono::duration<double>(facts.uptime).count());
  set.Add(Metric::kBuild,
          {{"version", std::string(control::kVersion)},
           {"protocol", std::to_string(shm::kProtocolVersion)},
           {"driver", facts.driver}},
          1);
  AddTuning(overview.tuning, set);
  AddProcess(facts.process, set);
  return set.Take();
}

}  // namespace tally::server
