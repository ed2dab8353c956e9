// Control blocks of persistent-worker launches in device memory: zero when they are handed out.
//
// They come in slabs that are cleared as a whole once every launch of theirs is over, so that a launch pays for no
// memset. A slab that is still in use is never waited for: another is made. Not thread-safe; one per device, whose
// context is current.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/device/variant_abi.h"
#include "server/gpu/driver_table.h"

namespace tally::server {

class ControlSlots {
 public:
  static constexpr uint32_t kSlotsPerSlab = 512;

  explicit ControlSlots(const DriverTable& driver) : driver_(driver) {}
  ~ControlSlots();
  ControlSlots(const ControlSlots&) = delete;
  ControlSlots& operator=(const ControlSlots&) = delete;

  // Waits for nothing but, every kSlotsPerSlab times, for a memset on `stream`, which should have no other work.
  CUresult Take(CUstream stream, CUdeviceptr* control);
  // The launch that had it is over.
  void Return(CUdeviceptr control);

 private:
  struct Slab {
    CUdeviceptr memory = 0;
    uint32_t num_taken = 0;     // since it was cleared
    uint32_t num_returned = 0;  // of them
  };
  CUresult Clear(Slab& slab, CUstream stream);

  const DriverTable& driver_;
  std::vector<std::unique_ptr<Slab>> slabs_;
  Slab* current_ = nullptr;
};

}  // namespace tally::server
