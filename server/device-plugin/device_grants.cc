#include "server/device-plugin/device_grants.h"

#include "base/log.h"

namespace tally::device_plugin {

Result<std::string> DeviceGrants::GiveOut(const Resource& resource, const std::string& device) {
  const std::string tenant = TenantOf(resource, device);
  const std::lock_guard lock(mutex_);
  if (const Status revoked = tallyd_.RevokeGrant(tenant); revoked.ok()) {
    LOG_INFO("device {} of {} is given out again: its earlier grant is revoked", device, resource.name);
  } else if (revoked.code() != StatusCode::kNotFound) {
    return std::unexpected(revoked);
  }
  auto socket = tallyd_.CreateGrant(tenant, resource, GpuOf(device));
  if (socket) seen_.insert(tenant);
  return socket;
}

Status DeviceGrants::Learn(const Resource& resource, const std::map<std::string, Holder>& holders) {
  if (holders.empty()) return OkStatus();
  const std::lock_guard lock(mutex_);
  const auto grants = tallyd_.Grants();
  if (!grants) return grants.error();
  Status first_problem;
  for (const auto& [device, holder] : holders) {
    const std::string tenant = TenantOf(resource, device);
    const auto grant = grants->find(tenant);
    const bool is_there = grant != grants->end();
    // Gone since we saw it: revoked.
    if ((is_there && grant->second == holder) || (!is_there && seen_.contains(tenant))) continue;
    Status status = is_there ? OkStatus() : MakeAgain(resource, device);
    if (status.ok()) status = tallyd_.LabelGrant(tenant, holder);
    if (status.ok()) {
      LOG_INFO("device {} of {} is {}/{}/{}'s", device, resource.name, holder.label_namespace, holder.pod,
               holder.container);
    } else if (first_problem.ok()) {
      first_problem = status;
    }
  }
  // Whatever is there now may be revoked later.
  for (const auto& [tenant, holder] : *grants) seen_.insert(tenant);
  return first_problem;
}

Status DeviceGrants::MakeAgain(const Resource& resource, const std::string& device) {
  const std::string tenant = TenantOf(resource, device);
  const auto made = tallyd_.CreateGrant(tenant, resource, GpuOf(device));
  if (!made) return made.error();
  seen_.insert(tenant);
  LOG_INFO("device {} of {} has a grant again: a container has had it since before tallyd started", device,
           resource.name);
  return OkStatus();
}

}  // namespace tally::device_plugin
