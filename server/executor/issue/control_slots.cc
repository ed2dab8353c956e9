#include "server/executor/issue/control_slots.h"

#include <algorithm>

namespace tally::server {

ControlSlots::~ControlSlots() {
  if (memory_ != 0) driver_.cuMemFree_v2(memory_);
}

CUresult ControlSlots::Open() { return driver_.cuMemAlloc_v2(&memory_, kNumSlabs * kSlabBytes); }

CUresult ControlSlots::Take(CUstream stream, CUdeviceptr* control) {
  if (slabs_[current_].num_taken == kSlotsPerSlab) {
    const auto next =
        std::find_if(slabs_.begin(), slabs_.end(), [](const Slab& slab) { return slab.num_returned == kSlotsPerSlab; });
    if (next == slabs_.end()) return CUDA_ERROR_NOT_READY;
    const auto index = static_cast<size_t>(next - slabs_.begin());
    if (const CUresult r = driver_.cuMemsetD8Async(memory_ + index * kSlabBytes, 0, kSlabBytes, stream);
        r != CUDA_SUCCESS) {
      return r;
    }
    if (const CUresult r = driver_.cuStreamSynchronize(stream); r != CUDA_SUCCESS) return r;
    *next = {.num_taken = 0, .num_returned = 0};
    current_ = index;
  }
  *control = memory_ + current_ * kSlabBytes + slabs_[current_].num_taken * sizeof(device::PersistentControl);
  ++slabs_[current_].num_taken;
  return CUDA_SUCCESS;
}

void ControlSlots::Return(CUdeviceptr control) { ++slabs_[(control - memory_) / kSlabBytes].num_returned; }

}  // namespace tally::server
