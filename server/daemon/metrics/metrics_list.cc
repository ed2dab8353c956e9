#include "server/daemon/metrics/metrics_list.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <vector>

namespace tally::server {
namespace {

constexpr MetricRow kRows[] = {
    {"tally_slo_objective_seconds", MetricKind::kGauge, "seconds", "tenant, uid, session, percentile",
     "The objective of a high-priority session."},
    {"tally_tuning_seconds", MetricKind::kGauge, "seconds", "time",
     "The times in force, the most careful that any objective asks for; time is turnaround_threshold, min_hold_off, "
     "max_hold_off or target_drain."},
    {"tally_refused_calls_total", MetricKind::kCounter, "calls", "function",
     "The refused calls again, of all tenants together, by the driver function that was called."},
    {"tally_sessions", MetricKind::kGauge, "sessions", "class, domain", "Client processes connected now."},
    {"tally_sessions_refused_total", MetricKind::kCounter, "sessions", "reason",
     "Clients that got no session; reason is a status code such as PERMISSION_DENIED or UNAVAILABLE."},
    {"tally_grant_info", MetricKind::kGauge, "none", "tenant, class, domain_policy, namespace, pod, container",
     "Always 1; the labels of a grant, to be joined with the families of tenants: they have uid=\"grant\" then."},
    {"tally_grant_sessions", MetricKind::kGauge, "sessions", "tenant", "Client processes of a grant connected now."},
    {"tally_grant_sessions_refused_total", MetricKind::kCounter, "sessions", "tenant, reason",
     "Clients that came by a grant's socket and got no session; PERMISSION_DENIED: they asked for more than it has."},
    {"tally_stale_sessions", MetricKind::kGauge, "sessions", "",
     "Sessions whose executor did not answer this scrape within half a second: their figures are the last known ones."},
    {"tally_executors", MetricKind::kGauge, "processes", "domain, state",
     "Executor processes; state is starting, serving or retiring."},
    {"tally_executor_policy", MetricKind::kGauge, "processes", "domain, policy",
     "Executors by the policy in force, be it asked for or what auto comes to."},
    {"tally_executor_time_slice_seconds", MetricKind::kGauge, "seconds", "domain, pid",
     "The longest time slice on the GPU of an executor's contexts, as read back from the driver."},
    {"tally_executor_time_slices_refused", MetricKind::kGauge, "GPU channel groups", "domain, pid",
     "GPU channel groups of an executor whose time slice the driver does not let be set: its work is not switched out "
     "soon."},
    {"tally_executor_suspension", MetricKind::kGauge, "none", "domain, pid, state",
     "1 for the state of an executor: on, it deschedules its contexts while high-priority work keeps coming; off, it "
     "is not to, or has no cause; refused, the driver does not do it."},
    {"tally_executor_suspensions_total", MetricKind::kCounter, "deschedulings", "domain, pid",
     "How often an executor's contexts were descheduled while high-priority work kept coming."},
    {"tally_executor_standstills_total", MetricKind::kCounter, "standstills", "domain, pid",
     "How often best-effort work waited for 250 ms or more with no high-priority work in its way, so that its contexts "
     "were descheduled and let go on once more."},
    {"tally_executor_refreshes_total", MetricKind::kCounter, "preemptions", "domain, pid",
     "How often an executor's contexts were preempted in a pause of high-priority work, so that their kernels start "
     "sooner afterwards."},
    {"tally_forced_switch_seconds", MetricKind::kGauge, "seconds", "percentile",
     "How long a kernel takes beside a GPU full of best-effort work, as measured when tallyd started."},
    {"tally_time_slices_act", MetricKind::kGauge, "none", "",
     "1 if that test saw that time slices can be set and have an effect, else 0."},
    {"tally_executor_starts_total", MetricKind::kCounter, "processes", "domain", "Executors started by this tallyd."},
    {"tally_executor_faults_total", MetricKind::kCounter, "faults", "domain",
     "Times an executor lost its CUDA context, for instance by an illegal access of a kernel."},
    {"tally_executor_failures_total", MetricKind::kCounter, "processes", "domain",
     "Executors that ended without having been asked to (killed or crashed)."},
    {"tally_uptime_seconds", MetricKind::kGauge, "seconds", "", "Time since this tallyd started."},
    {"tally_build_info", MetricKind::kGauge, "none", "version, protocol, driver",
     "Always 1; the labels say which tallyd this is and which driver new executors use."},
    {"process_cpu_seconds_total", MetricKind::kCounter, "seconds", "", "Processor time of tallyd, user and system."},
    {"process_start_time_seconds", MetricKind::kGauge, "seconds", "", "When tallyd was started, since the epoch."},
    {"process_virtual_memory_bytes", MetricKind::kGauge, "bytes", "", "Virtual memory of tallyd."},
    {"process_resident_memory_bytes", MetricKind::kGauge, "bytes", "", "Resident memory of tallyd."},
    {"process_open_fds", MetricKind::kGauge, "descriptors", "", "Open file descriptors of tallyd."},
    {"process_max_fds", MetricKind::kGauge, "descriptors", "", "How many tallyd may have open."},
};
static_assert(std::size(kRows) == static_cast<size_t>(Metric::kCount), "one row per enumerator, in its order");

MetricKind KindOf(const control::FigureRow& row) {
  if (row.entries == control::FigureEntries::kByStopTime) return MetricKind::kHistogram;
  return row.kind == control::FigureKind::kCounter ? MetricKind::kCounter : MetricKind::kGauge;
}

struct List {
  std::vector<MetricRow> rows;
  std::array<std::optional<size_t>, control::kNumSessionFigures> of_figure;  // by Figure::index()

  List() {
    for (const control::Figure figure : control::kAllFigures) {
      const control::FigureFamily& family = figure.row().family;
      const std::string_view name = family.name;
      if (name.empty()) continue;
      const auto found = std::ranges::find(rows, name, [](const MetricRow& row) { return std::string_view(row.name); });
      of_figure[figure.index()] = static_cast<size_t>(found - rows.begin());
      if (found != rows.end()) continue;
      rows.push_back({family.name, KindOf(figure.row()), family.unit, family.labels, family.sentence});
    }
    rows.insert(rows.end(), std::begin(kRows), std::end(kRows));
  }
};

const List& TheList() {
  static const List list;
  return list;
}

}  // namespace

std::span<const MetricRow> MetricsList() { return TheList().rows; }

size_t IndexOf(Metric metric) { return MetricsList().size() - std::size(kRows) + static_cast<size_t>(metric); }

std::optional<size_t> IndexOf(control::Figure figure) { return TheList().of_figure[figure.index()]; }

}  // namespace tally::server
