#include "server/variants/control_slots.h"

#include <algorithm>

namespace tally::server {
namespace {

constexpr size_t kSlabBytes = ControlSlots::kSlotsPerSlab * sizeof(device::WorkerControl);

}  // namespace

ControlSlots::~ControlSlots() {
  for (const auto& slab : slabs_) driver_.cuMemFree_v2(slab->memory);
}

CUresult ControlSlots::Clear(Slab& slab, CUstream stream) {
  if (const CUresult r = driver_.cuMemsetD8Async(slab.memory, 0, kSlabBytes, stream); r != CUDA_SUCCESS) return r;
  slab.num_taken = slab.num_returned = 0;
  return driver_.cuStreamSynchronize(stream);
}

CUresult ControlSlots::Take(CUstream stream, CUdeviceptr* control) {
  if (current_ == nullptr || current_->num_taken == kSlotsPerSlab) {
    const auto found = std::find_if(slabs_.begin(), slabs_.end(),
                                    [](const auto& slab) { return slab->num_returned == kSlotsPerSlab; });
    Slab* next = found != slabs_.end() ? found->get() : nullptr;
    if (next == nullptr) {
      auto slab = std::make_unique<Slab>();
      if (const CUresult r = driver_.cuMemAlloc_v2(&slab->memory, kSlabBytes); r != CUDA_SUCCESS) return r;
      next = slabs_.emplace_back(std::move(slab)).get();
    }
    if (const CUresult r = Clear(*next, stream); r != CUDA_SUCCESS) return r;
    current_ = next;
  }
  *control = current_->memory + current_->num_taken * sizeof(device::WorkerControl);
  ++current_->num_taken;
  return CUDA_SUCCESS;
}

void ControlSlots::Return(CUdeviceptr control) {
  for (const auto& slab : slabs_) {
    if (control >= slab->memory && control < slab->memory + kSlabBytes) ++slab->num_returned;
  }
}

}  // namespace tally::server
