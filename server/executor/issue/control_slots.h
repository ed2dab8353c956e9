// Control blocks of persistent launches in device memory: zero when they are handed out.
//
// As many as there ever are come at the start: allocating may wait for all that runs in the context, what has yielded
// and waits to go on among it. They come in slabs that are cleared as a whole once every launch of theirs is over, so
// that a launch pays for no memset. Not thread-safe; one per device, whose context is current.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

#include "proto/device/variant_abi.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {

class ControlSlots {
 public:
  static constexpr uint32_t kSlotsPerSlab = 512;
  static constexpr uint32_t kNumSlabs = 16;  // several streams filled to the brim: the driver takes about 1000 launches

  explicit ControlSlots(const DriverTable& driver) : driver_(driver) {}
  ~ControlSlots();
  ControlSlots(const ControlSlots&) = delete;
  ControlSlots& operator=(const ControlSlots&) = delete;

  // Once, before the others.
  CUresult Open();
  // Waits for nothing but, every kSlotsPerSlab times, for a memset on `stream`, which should have no other work.
  // CUDA_ERROR_NOT_READY: every slab has launches that are not over.
  CUresult Take(CUstream stream, CUdeviceptr* control);
  // The launch that had it is over.
  void Return(CUdeviceptr control);

 private:
  static constexpr size_t kSlabBytes = kSlotsPerSlab * sizeof(device::PersistentControl);

  // Full of launches that are over: to be cleared before it is used.
  struct Slab {
    uint32_t num_taken = kSlotsPerSlab;     // since it was cleared
    uint32_t num_returned = kSlotsPerSlab;  // of them
  };

  const DriverTable& driver_;
  CUdeviceptr memory_ = 0;  // of all slabs, one after another
  std::array<Slab, kNumSlabs> slabs_;
  size_t current_ = 0;
};

}  // namespace tally::server
