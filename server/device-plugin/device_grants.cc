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
  auto socket = tallyd_.CreateGrant(tenant, resource);
  if (socket) seen_.insert(tenant);
  return socket;
}

Status DeviceGrants::Learn(const Resource& resource, const std::map<std::string, Holder>& holders) {
  if (holders.empty()) return OkStatus();
  const std::lock_guard lock(mutex_);
  const auto grants = tallyd_.Grants();
  if (!grants) return grants.error();
  for (const auto& [device, holder] : holders) {
    const std::string tenant = TenantOf(resource, device);
    const auto grant = grants->find(tenant);
    const bool is_new_to_us = seen_.insert(tenant).second;
    if (grant == grants->end()) {
      if (!is_new_to_us) continue;
      if (const auto made = tallyd_.CreateGrant(tenant, resource); !made) {
        seen_.erase(tenant);
        return made.error();
      }
      LOG_INFO("device {} of {} has a grant again: a container has had it since before tallyd started", device,
               resource.name);
    } else if (grant->second == holder) {
      continue;
    }
    TALLY_RETURN_IF_ERROR(tallyd_.LabelGrant(tenant, holder));
    LOG_INFO("device {} of {} is {}/{}/{}'s", device, resource.name, holder.label_namespace, holder.pod,
             holder.container);
  }
  return OkStatus();
}

}  // namespace tally::device_plugin
