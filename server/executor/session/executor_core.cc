#include "server/executor/session/executor_core.h"

#include <unistd.h>

#include <utility>

namespace tally::server {
namespace {

uint64_t OrHalfOfTheMachine(uint64_t bytes) {
  if (bytes != 0) return bytes;
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) / 2;
}

// Of a session or a user.
template <typename Limits>
HeldLimits HeldLimitsOf(const Limits& limits) {
  HeldLimits held{};
  held[static_cast<size_t>(Held::kChannels)] = limits.channels;
  held[static_cast<size_t>(Held::kPinnedBytes)] = OrHalfOfTheMachine(limits.pinned_bytes);
  held[static_cast<size_t>(Held::kImageBytes)] = limits.image_bytes;
  held[static_cast<size_t>(Held::kOutputBytes)] = limits.output_bytes;
  return held;
}

}  // namespace

ExecutorCore::ExecutorCore(ExecutorParts parts, const SessionLimits& session_limits, const UserLimits& user_limits,
                           bool has_both_classes, const std::string& tenants_directory, const Doors& doors,
                           std::function<void()> on_device_used, OnLongBlocks on_long_blocks_of_session)
    : loaded_driver(std::move(parts.driver)),
      driver(loaded_driver->table),
      devices(std::move(parts.devices)),
      limits(session_limits),
      session_held_limits(HeldLimitsOf(session_limits)),
      user_held_limits(HeldLimitsOf(user_limits)),
      tenant_pages(tenants_directory),
      held_addresses(std::move(parts.held_addresses)),
      admission(std::move(parts.admission)),
      context_fault(std::move(parts.context_fault)),
      variants(std::move(parts.variants)),
      segments(loaded_driver->is_software),
      are_classes_mixed(has_both_classes),
      on_long_blocks(std::move(on_long_blocks_of_session)),
      wants_ptx(variants != nullptr || loaded_driver->is_software),
      device_output(std::move(parts.device_output)),
      used_devices(std::move(on_device_used)),
      foreign(driver, doors, devices->count()) {}

}  // namespace tally::server
