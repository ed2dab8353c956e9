#include "server/daemon/tenant_ledger.h"

namespace tally::server {

void Accumulate(control::SessionFigures& sum, const control::SessionFigures& more) {
  sum.kernel_launches += more.kernel_launches;
  sum.graph_launches += more.graph_launches;
  sum.host_to_device_bytes += more.host_to_device_bytes;
  sum.device_to_host_bytes += more.device_to_host_bytes;
  sum.device_to_device_bytes += more.device_to_device_bytes;
  sum.device_memory_bytes += more.device_memory_bytes;
  sum.pinned_memory_bytes += more.pinned_memory_bytes;
  sum.refused_calls += more.refused_calls;
  sum.failed_calls += more.failed_calls;
  sum.requests += more.requests;
  sum.gpu_time_ns += more.gpu_time_ns;
  sum.held_launches += more.held_launches;
  sum.held_ns += more.held_ns;
  sum.sliced_launches += more.sliced_launches;
  sum.worker_launches += more.worker_launches;
  sum.gated_launches += more.gated_launches;
  sum.slo_requests += more.slo_requests;  // the other two are of a session, now
  sum.yields += more.yields;
  sum.timed_yields += more.timed_yields;
  sum.yield_seen_ns += more.yield_seen_ns;
  sum.yield_written_ns += more.yield_written_ns;
  sum.yield_left_ns += more.yield_left_ns;
  for (size_t i = 0; i < control::kCoverages; ++i) sum.coverage_ns[i] += more.coverage_ns[i];
  for (size_t i = 0; i < control::kStopBuckets; ++i) sum.stops[i] += more.stops[i];
  sum.stop_ns += more.stop_ns;
  sum.resumed_launches += more.resumed_launches;
  sum.resumed_blocks += more.resumed_blocks;
}

void TenantLedger::AddEnded(const control::SessionIdentity& identity, const control::SessionFigures& figures) {
  TenantKey key{identity.tenant_name, identity.uid};
  if (ended_.size() >= kMaxTenants && !ended_.contains(key)) key = {"(others)", UINT32_MAX};
  control::SessionFigures counters = figures;
  counters.device_memory_bytes = 0;
  counters.pinned_memory_bytes = 0;
  Accumulate(ended_[key], counters);
}

}  // namespace tally::server
