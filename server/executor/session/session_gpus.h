// Which of the executor's devices a session may use, and in which order its program sees them: those of its grant
// (docs/tenants.md), else all. Every ordinal that a client sends is looked up here. Constant.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "proto/control/granted_gpus.h"
#include "proto/shm/records_context_abi.h"
#include "server/executor/driver/devices.h"

namespace tally::server {

class SessionGpus {
 public:
  // `granted` as control::JoinedGpus says it; empty: all.
  SessionGpus(const Devices& devices, std::string_view granted) {
    std::vector<control::GpuUuid> uuids(static_cast<size_t>(devices.count()));
    for (size_t i = 0; !granted.empty() && i < uuids.size(); ++i) {
      const CUuuid uuid = devices.Uuid(static_cast<int>(i));
      std::copy_n(reinterpret_cast<const uint8_t*>(uuid.bytes), uuids[i].size(), uuids[i].begin());
    }
    ordinals_ = control::OrdinalsOf(granted, uuids);
    for (const int ordinal : ordinals_) mask_ |= uint64_t{1} << ordinal;
  }

  bool Has(uint64_t ordinal) const { return ordinal < 64 && (mask_ >> ordinal & 1) != 0; }
  // One bit for each ordinal.
  uint64_t mask() const { return mask_; }
  // As the program sees them; perhaps none, where those of the grant are lost.
  const std::vector<int>& ordinals() const { return ordinals_; }
  // For shm::DeviceDescription.
  uint32_t OrderOf(int ordinal) const {
    const auto found = std::ranges::find(ordinals_, ordinal);
    return found == ordinals_.end() ? shm::kHiddenDevice : static_cast<uint32_t>(found - ordinals_.begin());
  }

 private:
  std::vector<int> ordinals_;
  uint64_t mask_ = 0;
};

}  // namespace tally::server
