// The attributes of one kernel, as far as they are known, device by device: a kernel of a library exists on every
// device, and its attributes are set on each for itself. Read on every launch without a lock; devices are few, and a
// program with one GPU has a list of one.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "proto/shm/records_code_abi.h"

namespace tally::client_shim {

class KernelAttributes {
 public:
  KernelAttributes() = default;
  ~KernelAttributes() {
    for (OfDevice* at = first_.load(std::memory_order_relaxed); at != nullptr;) delete std::exchange(at, at->next);
  }
  KernelAttributes(const KernelAttributes&) = delete;
  KernelAttributes& operator=(const KernelAttributes&) = delete;

  // Whether the value of `id`, a CUfunction_attribute, is known on `device` (the program's ordinal).
  bool Find(int device, int id, int32_t* value) const {
    const OfDevice* found = On(device);
    if (found == nullptr || id < 0 || id >= static_cast<int>(shm::kNumKernelAttributes) ||
        (found->valid.load(std::memory_order_acquire) >> id & 1) == 0)
      return false;
    *value = found->value[id].load(std::memory_order_relaxed);
    return true;
  }
  // The same; -1 when it is not known.
  int32_t Get(int device, int id) const {
    int32_t value = -1;
    return Find(device, id, &value) ? value : -1;
  }
  // Ids beyond the ones that are kept are ignored.
  void Keep(int device, int id, int32_t value) {
    if (id < 0 || id >= static_cast<int>(shm::kNumKernelAttributes)) return;
    OfDevice* place = On(device);
    if (place == nullptr) {
      place = new OfDevice(device);
      place->next = first_.load(std::memory_order_relaxed);
      // Two threads may add one device each, or both the same: then the later one hides the other, which costs a
      // question.
      while (!first_.compare_exchange_weak(place->next, place, std::memory_order_release, std::memory_order_relaxed)) {
      }
    }
    place->value[id].store(value, std::memory_order_relaxed);
    place->valid.fetch_or(1u << id, std::memory_order_release);
  }

 private:
  struct OfDevice {
    explicit OfDevice(int ordinal) : device(ordinal) {}
    const int device;
    std::atomic<uint32_t> valid{0};  // bit n: value n
    std::atomic<int32_t> value[shm::kNumKernelAttributes] = {};
    OfDevice* next = nullptr;
  };

  OfDevice* On(int device) const {
    for (OfDevice* at = first_.load(std::memory_order_acquire); at != nullptr; at = at->next) {
      if (at->device == device) return at;
    }
    return nullptr;
  }

  std::atomic<OfDevice*> first_{nullptr};
};

}  // namespace tally::client_shim
