#include "server/daemon/tenant_view.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/clock.h"
#include "base/mapped_region.h"
#include "base/unique_fd.h"
#include "proto/control/tenant_page_name.h"
#include "proto/shm/tenant_page_abi.h"

namespace tally::server {
namespace {

// By device. Empty: the tenant has no page, or none that is whole.
std::vector<uint64_t> HeldByPage(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid() || ::lseek(fd.get(), 0, SEEK_END) != static_cast<off_t>(sizeof(shm::TenantPage))) return {};
  const auto region = MappedRegion::Map(fd.get(), sizeof(shm::TenantPage));
  if (!region) return {};
  const auto& page = *reinterpret_cast<const shm::TenantPage*>(region->data());
  if (page.magic.load() != shm::kTenantPageMagic || page.version != shm::kTenantPageVersion) return {};
  std::vector<uint64_t> held(shm::kTenantDevices);
  for (const shm::TenantSlot& slot : page.slot) {
    for (size_t device = 0; device < held.size(); ++device) held[device] += slot.held_bytes[device].load();
  }
  return held;
}

void Describe(const control::LinkGpu& from, shm::ViewGpu& gpu) {
  std::memcpy(gpu.uuid, from.uuid, sizeof(gpu.uuid));
  gpu.total_memory_bytes = from.total_memory_bytes;
  gpu.pci_domain = from.pci_domain;
  gpu.pci_bus = from.pci_bus;
  gpu.pci_device = from.pci_device;
  gpu.capability = from.capability;
  static_assert(sizeof(gpu.name) == sizeof(from.name));
  std::memcpy(gpu.name, from.name, sizeof(gpu.name));
}

}  // namespace

shm::TenantViewReply ViewOf(const ExecutorPool& pool, const std::string& tenants_directory, const ViewOwner& owner) {
  shm::TenantViewReply view{};
  view.magic = shm::kViewMagic;
  view.protocol_version = shm::kProtocolVersion;
  view.driver_version = pool.driver_version();
  view.now_ns = MonotonicNs();
  const std::vector<int> seen = pool.KnownGpus(owner.gpus);  // by ordinal
  view.num_gpus = static_cast<uint32_t>(std::min(seen.size(), shm::kViewGpus));
  const auto ordinal = [&](size_t i) { return static_cast<size_t>(seen[i]); };
  for (size_t i = 0; i < view.num_gpus; ++i) Describe(pool.known_gpus()[ordinal(i)], view.gpu[i]);

  uint64_t held_bytes = 0;
  for (const auto& executor : pool.executors()) {
    for (const auto& [id, session] : executor->sessions) {
      const control::SessionIdentity& identity = session.identity;
      if (identity.grant_id != owner.grant_id) continue;
      if (owner.grant_id == 0 && (identity.uid != owner.uid || owner.tenant_name != identity.tenant_name)) continue;
      const uint64_t session_bytes = session.figures["device_memory_bytes"];
      held_bytes += session_bytes;
      if (identity.only_starts == 0 && view.num_processes < shm::kViewProcesses) {
        view.process[view.num_processes++] = {identity.pid, 0, session_bytes};
      }
      const auto busy = session.figures.entries("busy_ns");  // by place
      for (size_t i = 0; i < view.num_gpus; ++i) {
        if (ordinal(i) >= executor->gpu_places.size()) continue;
        const size_t place = executor->gpu_places[ordinal(i)];
        view.gpu[i].busy_ns += busy[control::GpuEntry(place, false)] + busy[control::GpuEntry(place, true)];
      }
    }
  }
  // Without a quota nobody counts by GPU.
  std::vector<uint64_t> held;
  if (owner.limit_bytes != 0) {
    held = HeldByPage(tenants_directory + "/" + control::TenantPageName(owner.grant_id, owner.uid, owner.tenant_name));
  } else if (view.num_gpus == 1) {
    held.assign(ordinal(0) + 1, held_bytes);
  }
  for (size_t i = 0; i < view.num_gpus; ++i) {
    view.gpu[i].limit_bytes = owner.limit_bytes;
    view.gpu[i].held_bytes = ordinal(i) < held.size() ? held[ordinal(i)] : 0;
  }
  return view;
}

}  // namespace tally::server
