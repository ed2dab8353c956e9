#include "server/daemon/rpc/control_service.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/printable.h"
#include "proto/control/version.h"
#include "proto/driver/generated/wire_ops.h"
#include "scheduler/launch.h"
#include "scheduler/tuning.h"
#include "scheduler/variant_choice.h"
#include "server/daemon/rpc/rpc_server.h"
#include "server/daemon/rpc/session_message.h"
#include "server/daemon/rpc/trace_stream.h"

namespace tally::server {
namespace {

namespace v1 = control::v1;

v1::DomainPolicy ToProto(DomainPolicy policy) {
  switch (policy) {
    case DomainPolicy::kTenant:
      return v1::DOMAIN_POLICY_TENANT;
    case DomainPolicy::kNamespace:
      return v1::DOMAIN_POLICY_NAMESPACE;
    case DomainPolicy::kShared:
      return v1::DOMAIN_POLICY_SHARED;
  }
  return v1::DOMAIN_POLICY_UNSPECIFIED;
}

Result<GrantSpec> FromProto(const v1::Grant& grant) {
  GrantSpec spec;
  spec.tenant = grant.tenant();
  if (grant.priority_class() == v1::PRIORITY_CLASS_HIGH) spec.ceiling = shm::PriorityClass::kHighPriority;
  if (grant.weight() != 0) spec.weight = grant.weight();
  spec.level = grant.level();
  spec.device_memory_bytes = grant.device_memory_bytes();
  if (grant.share() != 0) spec.share = grant.share();
  spec.gpus.assign(grant.gpus().begin(), grant.gpus().end());
  if (grant.domain_policy() == v1::DOMAIN_POLICY_NAMESPACE) spec.domain_policy = DomainPolicy::kNamespace;
  if (grant.domain_policy() == v1::DOMAIN_POLICY_SHARED) spec.domain_policy = DomainPolicy::kShared;
  spec.label_namespace = grant.namespace_();
  spec.pod = grant.pod();
  spec.container = grant.container();
  if (grant.has_owner_uid()) spec.owner_uid = grant.owner_uid();
  // A later tallyctl's: what it means is not known here.
  if (!v1::PriorityClass_IsValid(grant.priority_class()) || !v1::DomainPolicy_IsValid(grant.domain_policy())) {
    return Error(StatusCode::kInvalidArgument, "a class or domain policy that this tallyd does not know");
  }
  return spec;
}

void Fill(const GrantRow& row, v1::Grant* grant) {
  const GrantSpec& spec = row.grant.spec;
  grant->set_id(row.grant.id);
  grant->set_tenant(spec.tenant);
  grant->set_priority_class(server::ToProto(spec.ceiling));
  grant->set_weight(spec.weight);
  grant->set_level(spec.level);
  grant->set_device_memory_bytes(spec.device_memory_bytes);
  grant->set_share(spec.share);
  for (const std::string& gpu : spec.gpus) grant->add_gpus(gpu);
  grant->set_domain_policy(ToProto(spec.domain_policy));
  grant->set_namespace_(spec.label_namespace);
  grant->set_pod(spec.pod);
  grant->set_container(spec.container);
  grant->set_socket(row.socket);
  grant->set_num_sessions(row.num_sessions);
  grant->set_is_of_file(row.grant.is_of_file);
  if (spec.owner_uid) grant->set_owner_uid(*spec.owner_uid);
}

v1::Kernel::Form ToProto(scheduler::LaunchForm form) {
  switch (form) {
    case scheduler::LaunchForm::kOriginal:
      return v1::Kernel::FORM_ORIGINAL;
    case scheduler::LaunchForm::kSlices:
      return v1::Kernel::FORM_SLICES;
    case scheduler::LaunchForm::kPersistentBlocks:
      return v1::Kernel::FORM_WORKERS;
    case scheduler::LaunchForm::kGated:
      return v1::Kernel::FORM_GATED;
  }
  return v1::Kernel::FORM_UNSPECIFIED;
}

void Fill(const KernelRow& row, v1::Kernel* kernel) {
  const control::LinkKernelReport& report = row.report;
  kernel->set_name(Printable({report.kernel, ::strnlen(report.kernel, sizeof(report.kernel))}));
  kernel->set_domain(row.domain.Label());
  kernel->set_executor_pid(row.executor_pid);
  for (const uint32_t size : report.grid) kernel->add_grid(size);
  for (const uint32_t size : report.block) kernel->add_block(size);
  kernel->set_shared_bytes(report.shared_bytes);
  kernel->set_launches(report.num_launches);
  kernel->set_gpu_time_ns(report.gpu_time_ns);
  kernel->set_form(ToProto(static_cast<scheduler::LaunchForm>(report.form)));
  kernel->set_degree(report.degree);
  kernel->set_duration_ns(report.duration_ns);
  kernel->set_turnaround_ns(report.turnaround_ns);
  kernel->set_is_turnaround_measured(report.is_turnaround_measured != 0);
  kernel->set_original_duration_ns(report.original_duration_ns);
  kernel->set_remark(report.remark);
}

// As many calls at a time, and all threads from the start: an operator wants to look when the machine has none left.
constexpr int kThreads = 16;

class RunningServer final : public RpcServer {
 public:
  explicit RunningServer(ControlDesk& desk) : service_(desk) {}
  ~RunningServer() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }

  Status Listen(const std::string& socket_path) {
    ::unlink(socket_path.c_str());  // the runtime directory is locked: nobody serves it
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket_path, grpc::InsecureServerCredentials());
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, kThreads);
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, kThreads);
    grpc::ResourceQuota quota;
    quota.SetMaxThreads(kThreads);
    builder.SetResourceQuota(quota);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ != nullptr) return OkStatus();
    return Status(StatusCode::kUnavailable, "cannot serve the control socket '" + socket_path + "'");
  }

 private:
  ControlService service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

grpc::Status ControlService::ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest*,
                                          v1::ListSessionsResponse* response) {
  const auto overview = desk_.GetOverview();
  if (!overview) return ToGrpc(overview.error());
  for (const SessionRow& row : overview->sessions) Fill(row, overview->gpus, response->add_sessions());
  return grpc::Status::OK;
}

grpc::Status ControlService::ListExecutors(grpc::ServerContext*, const v1::ListExecutorsRequest*,
                                           v1::ListExecutorsResponse* response) {
  const auto overview = desk_.GetOverview();
  if (!overview) return ToGrpc(overview.error());
  for (const ExecutorRow& row : overview->executors) Fill(row, response->add_executors());
  return grpc::Status::OK;
}

grpc::Status ControlService::SetPriority(grpc::ServerContext*, const v1::SetPriorityRequest* request,
                                         v1::SetPriorityResponse*) {
  const auto refuse = [](const char* sentence) { return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, sentence); };
  control::ShareChange change;
  if (request->priority_class() == v1::PRIORITY_CLASS_HIGH) change.priority_class = shm::PriorityClass::kHighPriority;
  if (request->priority_class() == v1::PRIORITY_CLASS_BEST_EFFORT) {
    change.priority_class = shm::PriorityClass::kBestEffort;
  }
  const bool is_class_unknown = change.priority_class == shm::PriorityClass::kDefault &&
                                request->priority_class() != v1::PRIORITY_CLASS_UNSPECIFIED;
  if (is_class_unknown) return refuse("priority_class must be HIGH or BEST_EFFORT");
  if (request->has_weight()) change.weight = request->weight();
  if (request->has_level()) change.level = request->level();
  if (change.weight && (*change.weight < 1 || *change.weight > scheduler::kMaxWeight)) {
    return refuse("weight must be from 1 to 10000");
  }
  if (change.level && *change.level >= scheduler::kNumLevels) return refuse("level must be from 0 to 7");
  if (change.priority_class == shm::PriorityClass::kDefault && !change.weight && !change.level) {
    return refuse("nothing to change: give a priority_class, a weight or a level");
  }
  return ToGrpc(desk_.SetPriority(request->session_id(), change));
}

grpc::Status ControlService::ListKernels(grpc::ServerContext*, const v1::ListKernelsRequest*,
                                         v1::ListKernelsResponse* response) {
  const auto kernels = desk_.GetKernels();
  if (!kernels) return ToGrpc(kernels.error());
  for (const KernelRow& row : kernels->rows) Fill(row, response->add_kernels());
  response->set_late_executors(static_cast<uint32_t>(kernels->late.size()));
  return grpc::Status::OK;
}

grpc::Status ControlService::ListWindowShapes(grpc::ServerContext*, const v1::ListWindowShapesRequest*,
                                              v1::ListWindowShapesResponse* response) {
  const auto shapes = desk_.GetWindowShapes();
  if (!shapes) return ToGrpc(shapes.error());
  for (const control::WindowShapeFigures& figures : shapes->rows) Fill(figures, response->add_shapes());
  response->set_late_executors(static_cast<uint32_t>(shapes->late.size()));
  return grpc::Status::OK;
}

grpc::Status ControlService::ListGraphs(grpc::ServerContext*, const v1::ListGraphsRequest*,
                                        v1::ListGraphsResponse* response) {
  const auto graphs = desk_.GetGraphs();
  if (!graphs) return ToGrpc(graphs.error());
  for (const control::GraphFigures& figures : graphs->rows) Fill(figures, response->add_graphs());
  response->set_late_executors(static_cast<uint32_t>(graphs->late.size()));
  return grpc::Status::OK;
}

grpc::Status ControlService::DrawGraph(grpc::ServerContext*, const v1::DrawGraphRequest* request,
                                       v1::DrawGraphResponse* response) {
  return server::DrawGraph(desk_, *request, response);
}

grpc::Status ControlService::Trace(grpc::ServerContext*, const v1::TraceRequest* request,
                                   grpc::ServerWriter<v1::TraceChunk>* writer) {
  return StreamTrace(desk_, *request, std::nullopt, *writer);
}

grpc::Status ControlService::GetTotals(grpc::ServerContext*, const v1::GetTotalsRequest*,
                                       v1::GetTotalsResponse* response) {
  const auto overview = desk_.GetOverview();
  if (!overview) return ToGrpc(overview.error());
  Fill(*overview, response);
  return grpc::Status::OK;
}

grpc::Status ControlService::SetTurnaround(grpc::ServerContext*, const v1::SetTurnaroundRequest* request,
                                           v1::SetTurnaroundResponse*) {
  const std::chrono::nanoseconds threshold(request->threshold_ns());
  const bool is_as_for_all = request->has_session_id() && request->threshold_ns() == 0;
  if (!is_as_for_all && !scheduler::IsTurnaround(threshold)) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "threshold_ns must be from 1000 to 1000000000");
  }
  if (!request->has_session_id()) return ToGrpc(desk_.SetTurnaroundThreshold(threshold));
  control::ShareChange change;
  change.turnaround = threshold;
  return ToGrpc(desk_.SetPriority(request->session_id(), change));
}

grpc::Status ControlService::CreateGrant(grpc::ServerContext*, const v1::CreateGrantRequest* request,
                                         v1::CreateGrantResponse* response) {
  const auto spec = FromProto(request->grant());
  if (!spec) return ToGrpc(spec.error());
  const auto created = desk_.CreateGrant(*spec);
  if (!created) return ToGrpc(created.error());
  Fill(*created, response->mutable_grant());
  return grpc::Status::OK;
}

grpc::Status ControlService::ListGrants(grpc::ServerContext*, const v1::ListGrantsRequest*,
                                        v1::ListGrantsResponse* response) {
  const auto grants = desk_.GetGrants();
  if (!grants) return ToGrpc(grants.error());
  for (const GrantRow& row : *grants) Fill(row, response->add_grants());
  return grpc::Status::OK;
}

grpc::Status ControlService::LabelGrant(grpc::ServerContext*, const v1::LabelGrantRequest* request,
                                        v1::LabelGrantResponse*) {
  return ToGrpc(desk_.LabelGrant(request->tenant(), {request->namespace_(), request->pod(), request->container()}));
}

grpc::Status ControlService::RevokeGrant(grpc::ServerContext*, const v1::RevokeGrantRequest* request,
                                         v1::RevokeGrantResponse*) {
  return ToGrpc(desk_.RevokeGrant(request->tenant()));
}

grpc::Status ControlService::Version(grpc::ServerContext*, const v1::VersionRequest*, v1::VersionResponse* response) {
  const DaemonFacts facts = desk_.facts();
  Fill(facts, response);
  response->set_cache_directory(facts.cache_directory);
  if (facts.forced_switch) {
    response->mutable_switch_test()->set_acts(facts.forced_switch->acts);
    response->mutable_switch_test()->set_p99_us(facts.forced_switch->p99_us);
    response->mutable_switch_test()->set_own_p99_us(facts.forced_switch->own_p99_us);
  }
  return grpc::Status::OK;
}

Result<std::unique_ptr<RpcServer>> RpcServer::Start(const std::string& socket_path, ControlDesk& desk) {
  auto server = std::make_unique<RunningServer>(desk);
  if (const Status listening = server->Listen(socket_path); !listening.ok()) return std::unexpected(listening);
  return server;
}

}  // namespace tally::server
