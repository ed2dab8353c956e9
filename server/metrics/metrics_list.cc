#include "server/metrics/metrics_list.h"

namespace tally::server {
namespace {

constexpr MetricRow kRows[] = {
    {"tally_tenant_kernel_launches_total", MetricKind::kCounter, "launches", "tenant, uid",
     "Kernels launched one by one, not through graphs."},
    {"tally_tenant_graph_launches_total", MetricKind::kCounter, "launches", "tenant, uid", "Graphs launched."},
    {"tally_tenant_copied_bytes_total", MetricKind::kCounter, "bytes", "tenant, uid, direction",
     "Bytes copied; direction is host_to_device, device_to_host or device_to_device."},
    {"tally_tenant_device_memory_bytes", MetricKind::kGauge, "bytes", "tenant, uid",
     "Device memory held by running sessions."},
    {"tally_tenant_pinned_memory_bytes", MetricKind::kGauge, "bytes", "tenant, uid",
     "Page-locked host memory held by running sessions."},
    {"tally_tenant_requests_total", MetricKind::kCounter, "calls", "tenant, uid",
     "Driver calls that reached the executor; most calls are answered in the client and are not counted."},
    {"tally_tenant_refused_calls_total", MetricKind::kCounter, "calls", "tenant, uid",
     "Driver calls that Tally does not support and refused with CUDA_ERROR_NOT_SUPPORTED."},
    {"tally_tenant_failed_calls_total", MetricKind::kCounter, "calls", "tenant, uid",
     "Driver calls that returned any other error."},
    {"tally_tenant_gpu_seconds_total", MetricKind::kCounter, "seconds", "tenant, uid",
     "GPU time of best-effort launches, estimated from samples; 0 with the policies look-ahead and none."},
    {"tally_tenant_held_launches_total", MetricKind::kCounter, "launches", "tenant, uid",
     "Best-effort launches and copies that had to wait at the dispatch gate."},
    {"tally_tenant_held_seconds_total", MetricKind::kCounter, "seconds", "tenant, uid",
     "How long those waited, all together."},
    {"tally_tenant_varied_launches_total", MetricKind::kCounter, "launches", "tenant, uid, form",
     "Best-effort launches in another form than the original; form is slices, workers or gated."},
    {"tally_tenant_yields_total", MetricKind::kCounter, "yields", "tenant, uid",
     "Times that a launch by workers, or a queue of gated ones, gave the GPU back and went on later."},
    {"tally_tenant_timed_yields_total", MetricKind::kCounter, "yields", "tenant, uid",
     "Launches by workers, and queues of gated launches, that were running when they were asked to give the GPU back."},
    {"tally_tenant_yield_seconds_total", MetricKind::kCounter, "seconds", "tenant, uid, phase",
     "How long those took: phase seen (from the announcement of high-priority work), written (the flag), left (the "
     "blocks)."},
    {"tally_tenant_covered_seconds_total", MetricKind::kCounter, "seconds", "tenant, uid, by, reason",
     "GPU time of best-effort launches, estimated, by what could take the GPU from them: slices, workers, gated, short "
     "or "
     "time_slice, the last with a reason; counted with transforms only."},
    {"tally_tenant_stop_seconds", MetricKind::kHistogram, "seconds", "tenant, uid",
     "How long queues of gated launches that were stopped took to leave the GPU, from the store that stops them."},
    {"tally_tenant_resumed_launches_total", MetricKind::kCounter, "launches", "tenant, uid",
     "Launches that had to go on, or to be made again, after such a stop."},
    {"tally_tenant_resumed_blocks_total", MetricKind::kCounter, "blocks", "tenant, uid",
     "Blocks of those that had not run when the queue was stopped; clusters of launches with clusters."},
    {"tally_tenant_slo_requests_total", MetricKind::kCounter, "requests", "tenant, uid",
     "Requests of high-priority sessions with an objective (--slo) that were timed."},
    {"tally_slo_objective_seconds", MetricKind::kGauge, "seconds", "tenant, uid, session, percentile",
     "The objective of a high-priority session."},
    {"tally_slo_observed_seconds", MetricKind::kGauge, "seconds", "tenant, uid, session, percentile",
     "What the last window of its requests had at that percentile; missing before the first window's end."},
    {"tally_slo_caution", MetricKind::kGauge, "none", "tenant, uid, session",
     "How careful with best-effort work the objective asks to be: 0 most generous, 1 most careful."},
    {"tally_tuning_seconds", MetricKind::kGauge, "seconds", "time",
     "The times in force, the most careful that any objective asks for; time is turnaround_threshold, min_hold_off, "
     "max_hold_off or target_drain."},
    {"tally_refused_calls_total", MetricKind::kCounter, "calls", "function",
     "The refused calls again, of all tenants together, by the driver function that was called."},
    {"tally_sessions", MetricKind::kGauge, "sessions", "class, domain", "Client processes connected now."},
    {"tally_sessions_refused_total", MetricKind::kCounter, "sessions", "reason",
     "Clients that got no session; reason is a status code such as PERMISSION_DENIED or UNAVAILABLE."},
    {"tally_stale_sessions", MetricKind::kGauge, "sessions", "",
     "Sessions whose executor did not answer this scrape within half a second: their figures are the last known ones."},
    {"tally_executors", MetricKind::kGauge, "processes", "domain, state",
     "Executor processes; state is starting, serving or retiring."},
    {"tally_executor_policy", MetricKind::kGauge, "processes", "domain, policy",
     "Executors by the policy in force, be it asked for or what auto comes to."},
    {"tally_executor_time_slice_seconds", MetricKind::kGauge, "seconds", "domain, pid",
     "The longest time slice on the GPU of an executor's contexts, as read back from the driver."},
    {"tally_executor_time_slices_refused", MetricKind::kGauge, "channel groups", "domain, pid",
     "Channel groups of an executor whose time slice the driver does not let be set: its work is not switched out "
     "soon."},
    {"tally_executor_suspension", MetricKind::kGauge, "none", "domain, pid, state",
     "1 for the state of an executor: on, it suspends its contexts while high-priority work keeps coming; off, it is "
     "not to, or has no cause; refused, the driver does not do it."},
    {"tally_executor_suspensions_total", MetricKind::kCounter, "suspensions", "domain, pid",
     "How often an executor's contexts were suspended while high-priority work kept coming."},
    {"tally_executor_standstills_total", MetricKind::kCounter, "standstills", "domain, pid",
     "How often best-effort work waited for 250 ms or more with no high-priority work in its way, so that its contexts "
     "were suspended and let go on once more."},
    {"tally_executor_refreshes_total", MetricKind::kCounter, "preemptions", "domain, pid",
     "How often an executor's contexts were preempted in a pause of high-priority work, so that their kernels start "
     "sooner afterwards."},
    {"tally_forced_switch_seconds", MetricKind::kGauge, "seconds", "quantile",
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
};
static_assert(std::size(kRows) == static_cast<size_t>(Metric::kCount), "one row per enumerator, in its order");

}  // namespace

std::span<const MetricRow> MetricsList() { return kRows; }

}  // namespace tally::server
