#include "server/device-plugin/tallyd.h"

#include "server/ctl/control_call.h"

namespace tally::device_plugin {
namespace {

namespace v1 = control::v1;

// Keeps the code of an answer, which callers of tallyctl's do without.
Status Ask(const std::string& socket, const cli::ControlCall& call) {
  StatusCode code = StatusCode::kUnavailable;
  const std::string problem = cli::CallControl(socket, cli::kCallLimit, [&](auto& stub, auto& context) {
    const grpc::Status status = call(stub, context);
    code = static_cast<StatusCode>(status.error_code());
    return status;
  });
  return problem.empty() ? OkStatus() : Status(code, problem);
}

}  // namespace

Result<std::string> TallydBySocket::Driver() {
  v1::VersionResponse response;
  const Status asked = Ask(socket_, [&](auto& stub, auto& context) { return stub.Version(&context, {}, &response); });
  if (!asked.ok()) return std::unexpected(asked);
  return response.driver();
}

Result<std::vector<pid_t>> TallydBySocket::Executors() {
  v1::ListExecutorsResponse response;
  const Status asked =
      Ask(socket_, [&](auto& stub, auto& context) { return stub.ListExecutors(&context, {}, &response); });
  if (!asked.ok()) return std::unexpected(asked);
  std::vector<pid_t> pids;
  for (const v1::Executor& executor : response.executors()) pids.push_back(executor.pid());
  return pids;
}

Result<std::map<std::string, Holder>> TallydBySocket::Grants() {
  v1::ListGrantsResponse response;
  const Status asked =
      Ask(socket_, [&](auto& stub, auto& context) { return stub.ListGrants(&context, {}, &response); });
  if (!asked.ok()) return std::unexpected(asked);
  std::map<std::string, Holder> grants;
  for (const v1::Grant& grant : response.grants()) {
    grants[grant.tenant()] = {grant.namespace_(), grant.pod(), grant.container()};
  }
  return grants;
}

Result<std::string> TallydBySocket::CreateGrant(const std::string& tenant, const Resource& resource,
                                                const std::string& gpu) {
  v1::CreateGrantRequest request;
  v1::Grant& grant = *request.mutable_grant();
  grant.set_tenant(tenant);
  grant.set_priority_class(resource.is_high ? v1::PRIORITY_CLASS_HIGH : v1::PRIORITY_CLASS_BEST_EFFORT);
  grant.set_device_memory_bytes(resource.memory_bytes);
  if (!gpu.empty()) grant.add_gpus(gpu);
  v1::CreateGrantResponse response;
  const Status asked =
      Ask(socket_, [&](auto& stub, auto& context) { return stub.CreateGrant(&context, request, &response); });
  if (!asked.ok()) return std::unexpected(asked);
  return response.grant().socket();
}

Status TallydBySocket::LabelGrant(const std::string& tenant, const Holder& holder) {
  v1::LabelGrantRequest request;
  request.set_tenant(tenant);
  request.set_namespace_(holder.label_namespace);
  request.set_pod(holder.pod);
  request.set_container(holder.container);
  v1::LabelGrantResponse response;
  return Ask(socket_, [&](auto& stub, auto& context) { return stub.LabelGrant(&context, request, &response); });
}

Status TallydBySocket::RevokeGrant(const std::string& tenant) {
  v1::RevokeGrantRequest request;
  request.set_tenant(tenant);
  v1::RevokeGrantResponse response;
  return Ask(socket_, [&](auto& stub, auto& context) { return stub.RevokeGrant(&context, request, &response); });
}

}  // namespace tally::device_plugin
