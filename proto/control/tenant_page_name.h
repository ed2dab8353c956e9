// What the file of a tenant's page (proto/shm/tenant_page_abi.h) is called in kTenantsDirectory of the runtime
// directory: executors make it, tallyd removes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tally::control {

inline constexpr const char* kTenantsDirectory = "tenants";

// Of the tenant of a grant; without one (0) of the programs of one name and user. The name may hold anything.
inline std::string TenantPageName(uint64_t grant_id, uint32_t uid, std::string_view tenant_name) {
  if (grant_id != 0) return "grant-" + std::to_string(grant_id);
  uint64_t hash = 0xCBF29CE484222325;
  for (const char letter : tenant_name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3;
  return "user-" + std::to_string(uid) + "-" + std::to_string(hash);
}

}  // namespace tally::control
