#include "server/daemon/rpc/session_message.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "proto/control/preemptibility.h"
#include "proto/control/session_fields.h"
#include "proto/control/version.h"
#include "proto/control/window_mode.h"
#include "proto/driver/generated/wire_ops.h"
#include "scheduler/slo.h"

namespace tally::server {

namespace v1 = control::v1;

// Codes are numbered alike (base/status.h).
grpc::Status ToGrpc(const Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message());
}

v1::PriorityClass ToProto(shm::PriorityClass priority_class) {
  switch (priority_class) {
    case shm::PriorityClass::kHighPriority:
      return v1::PRIORITY_CLASS_HIGH;
    case shm::PriorityClass::kBestEffort:
      return v1::PRIORITY_CLASS_BEST_EFFORT;
    case shm::PriorityClass::kDefault:
      break;
  }
  return v1::PRIORITY_CLASS_UNSPECIFIED;
}

// Those that are not 0.
static void AddBusy(const control::SessionFigures& figures, const std::vector<std::string>& gpus,
                    google::protobuf::RepeatedPtrField<v1::BusyTime>& list) {
  const auto busy_ns = figures.entries("busy_ns");
  for (size_t place = 0; place < std::min(gpus.size(), control::kMostGpus); ++place) {
    for (const bool is_high : {false, true}) {
      const uint64_t time_ns = busy_ns[control::GpuEntry(place, is_high)];
      if (time_ns == 0) continue;
      v1::BusyTime* busy = list.Add();
      busy->set_gpu(gpus[place]);
      busy->set_place(static_cast<uint32_t>(place));
      busy->set_priority_class(is_high ? v1::PRIORITY_CLASS_HIGH : v1::PRIORITY_CLASS_BEST_EFFORT);
      busy->set_busy_ns(time_ns);
    }
  }
}

void Fill(const SessionRow& row, const std::vector<std::string>& gpus, v1::Session* session) {
  const control::SessionIdentity& identity = row.record.identity;
  const control::SessionFigures& figures = row.record.figures;
  session->set_id(identity.session_id);
  session->set_tenant(identity.tenant_name);
  session->set_pid(identity.pid);
  session->set_uid(identity.uid);
  session->set_priority_class(ToProto(static_cast<shm::PriorityClass>(identity.priority_class)));
  session->set_domain(row.domain.Label());
  session->set_executor_pid(row.executor_pid);
  session->set_driver(row.driver_name);
  session->set_age_ns(static_cast<uint64_t>(row.age.count()));
  session->set_weight(identity.weight);
  session->set_level(identity.level);
  session->set_turnaround_ns(identity.turnaround_ns);
  session->set_window(control::NameOf(static_cast<control::WindowMode>(identity.window)));
  control::SetFigures(figures, session);
  const auto preemptibility_ns = figures.entries("preemptibility_ns");
  for (size_t i = 0; i < control::kNumPreemptibilities; ++i) {
    if (preemptibility_ns[i] == 0) continue;
    v1::CoveredTime* covered = session->add_coverage();
    covered->set_by(control::NameOf(static_cast<control::Preemptibility>(i)).by);
    covered->set_reason(control::NameOf(static_cast<control::Preemptibility>(i)).reason);
    covered->set_gpu_time_ns(preemptibility_ns[i]);
  }
  AddBusy(figures, gpus, *session->mutable_busy());
  if (identity.slo_latency_ns != 0) {
    const scheduler::Slo slo{identity.slo_percentile, std::chrono::nanoseconds(identity.slo_latency_ns)};
    session->set_slo(scheduler::ToText(slo));
  }
  session->set_is_stale(row.record.is_stale);
  session->set_cgroup(row.record.cgroup);
  session->set_grant_id(identity.grant_id);
  session->set_namespace_(row.grant.label_namespace);
  session->set_pod(row.grant.pod);
  session->set_container(row.grant.container);
  session->set_device_memory_limit_bytes(identity.device_memory_bytes);
}

static v1::Executor::State ToProto(ExecutorState state) {
  switch (state) {
    case ExecutorState::kStarting:
    case ExecutorState::kDisconnected:
      return v1::Executor::STATE_STARTING;
    case ExecutorState::kServing:
      return v1::Executor::STATE_SERVING;
    case ExecutorState::kLeaving:
    case ExecutorState::kRetiring:
      return v1::Executor::STATE_RETIRING;
  }
  return v1::Executor::STATE_UNSPECIFIED;
}

void Fill(const ExecutorRow& row, v1::Executor* executor) {
  executor->set_pid(row.pid);
  executor->set_domain(row.domain.Label());
  executor->set_priority_class(ToProto(row.domain.priority_class));
  executor->set_state(ToProto(row.state));
  executor->set_driver(row.driver_name);
  executor->set_num_devices(row.num_devices);
  executor->set_num_sessions(static_cast<uint32_t>(row.num_sessions));
  executor->set_age_ns(static_cast<uint64_t>(row.age.count()));
  executor->set_is_adopted(row.is_adopted);
  executor->set_policy(row.policy_name);
  executor->set_policy_reason(row.policy_reason);
  executor->set_time_slice_us(row.time_slices.longest_us);
  executor->set_shortest_time_slice_us(row.time_slices.shortest_us);
  executor->set_is_time_slice_refused(row.time_slices.num_refused != 0);
  executor->set_suspension(NameOf(row.time_slices.descheduling));
  executor->set_num_suspensions(row.time_slices.num_deschedulings);
  executor->set_num_standstills(row.time_slices.num_standstills);
  executor->set_num_refreshes(row.time_slices.num_refreshes);
}

void Fill(const control::WindowShapeFigures& figures, v1::WindowShape* shape) {
  shape->set_session_id(figures.session_id);
  shape->set_launches(figures.num_nodes);
  shape->set_levels(figures.num_levels);
  shape->set_tracks(figures.num_tracks);
  shape->set_uses(figures.num_uses);
  shape->set_in_order_ns(figures.in_order_ns);
  shape->set_graph_ns(figures.graph_ns);
  shape->set_way(control::NameOf(figures.way));
}

void Fill(const control::GraphFigures& figures, v1::Graph* graph) {
  graph->set_session_id(figures.session_id);
  graph->set_number(figures.number);
  graph->set_nodes(figures.num_nodes);
  graph->set_partitions(figures.num_partitions);
  graph->set_streams(figures.num_streams);
  graph->set_gpus(figures.num_gpus);
  graph->set_launches(figures.num_launches);
  graph->set_launches_in_partitions(figures.num_partitioned);
  graph->set_whole_ns(figures.whole_ns);
  graph->set_in_partitions_ns(figures.partitioned_ns);
  graph->set_launches_spread(figures.num_spread);
  graph->set_spread_ns(figures.spread_ns);
  graph->set_moved_bytes(figures.moved_bytes);
  graph->set_why_whole(control::NameOf(figures.reason));
}

grpc::Status NoSuchGraph() {
  return grpc::Status(grpc::StatusCode::NOT_FOUND,
                      "there is no such graph, or it is neither cut into partitions nor spread");
}

grpc::Status DrawGraph(ControlDesk& desk, const v1::DrawGraphRequest& request, v1::DrawGraphResponse* response) {
  auto text = desk.DrawGraph(request.session_id(), request.number());
  if (!text) return ToGrpc(text.error());
  if (text->empty()) return NoSuchGraph();
  response->set_dot(std::move(*text));
  return grpc::Status::OK;
}

void Fill(const Overview& overview, v1::GetTotalsResponse* totals) {
  control::SessionFigures figures{};
  for (const auto& [tenant, of_tenant] : overview.tenants) Accumulate(figures, of_tenant);
  totals->set_sessions(static_cast<uint32_t>(overview.sessions.size()));
  totals->set_high_priority_sessions(
      static_cast<uint32_t>(std::ranges::count_if(overview.sessions, [](const SessionRow& row) {
        return row.record.identity.priority_class == static_cast<uint32_t>(shm::PriorityClass::kHighPriority);
      })));
  totals->set_executors(static_cast<uint32_t>(overview.executors.size()));
  for (const SessionRow& row : overview.sessions) {
    totals->set_device_memory_bytes(totals->device_memory_bytes() + row.record.figures["device_memory_bytes"]);
  }
  totals->set_kernel_launches(figures["kernel_launches"]);
  totals->set_graph_launches(figures["graph_launches"]);
  totals->set_held_launches(figures["held_launches"]);
  AddBusy(figures, overview.gpus, *totals->mutable_busy());
}

void Fill(const DaemonFacts& facts, v1::VersionResponse* response) {
  response->set_version(std::string(control::kVersion));
  response->set_protocol_version(shm::kProtocolVersion);
  response->set_api_table_hash(kApiTableHash);
  response->set_pid(::getpid());
  response->set_uptime_ns(static_cast<uint64_t>(facts.uptime.count()));
  response->set_socket(facts.socket);
  response->set_driver(facts.driver);
}

}  // namespace tally::server
