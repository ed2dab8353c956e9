// What the client keeps about a kernel (CUfunction or CUkernel): how its parameters lie, and its attributes. Read on
// every launch without a lock.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "client-shim/state/slot_table.h"
#include "client-shim/transport/lane.h"
#include "proto/shm/records_abi.h"

namespace tally::client_shim {

// Attributes of a CUkernel on the devices beyond the first, as far as the executor was asked or told.
struct OtherDevices {
  static constexpr int kNumDevices = 16;
  static constexpr int32_t kUnknown = INT32_MIN;
  std::atomic<int32_t> value[kNumDevices][shm::kNumKernelAttributes];
  OtherDevices() {
    for (auto& device : value) {
      for (auto& attribute : device) attribute.store(kUnknown, std::memory_order_relaxed);
    }
  }
};

struct Kernel {
  Kernel() = default;
  ~Kernel() { delete other_devices.load(); }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  uint64_t handle = 0;
  uint64_t owner = 0;  // module or library
  std::string name;
  uint32_t num_parameters = 0;
  uint32_t parameter_bytes = 0;
  std::unique_ptr<shm::ParameterLayout[]> layout;
  std::atomic<int32_t> attribute[shm::kNumKernelAttributes] = {};
  std::atomic<uint32_t> attribute_valid{0};  // bit n: attribute n
  // Of a CUkernel: its CUfunction in `function_context`. Of that function: the CUkernel. 0 if not known.
  std::atomic<uint64_t> twin{0};
  std::atomic<uint32_t> function_context{shm::kNoContext};

  std::atomic<OtherDevices*> other_devices{nullptr};  // made when first needed

  // Where the attribute on a device is remembered; null for the first device, and for ids and devices without room.
  std::atomic<int32_t>* OnOtherDevice(int device, uint32_t id) {
    if (device <= 0 || device >= OtherDevices::kNumDevices || id >= shm::kNumKernelAttributes) return nullptr;
    OtherDevices* others = other_devices.load(std::memory_order_acquire);
    if (others == nullptr) {
      auto made = std::make_unique<OtherDevices>();
      if (other_devices.compare_exchange_strong(others, made.get(), std::memory_order_acq_rel)) others = made.release();
    }
    return &others->value[device][id];
  }
  // As Attribute, on any device; what is not known there is taken to be as on the first.
  int32_t AttributeOn(int device, int id) const {
    const OtherDevices* others = other_devices.load(std::memory_order_acquire);
    if (device > 0 && device < OtherDevices::kNumDevices && others != nullptr) {
      if (const int32_t known = others->value[device][id].load(std::memory_order_relaxed);
          known != OtherDevices::kUnknown)
        return known;
    }
    return Attribute(id);
  }

  // -1 when the executor did not say.
  int32_t Attribute(int id) const {
    if (id < 0 || id >= static_cast<int>(shm::kNumKernelAttributes) ||
        (attribute_valid.load(std::memory_order_acquire) >> id & 1) == 0)
      return -1;
    return attribute[id].load(std::memory_order_relaxed);
  }
};

class Kernels {
 public:
  // The kernel behind a CUfunction, or a CUkernel cast to one, as cudart does. Null when unknown.
  Kernel* Find(uint64_t handle) const {
    switch (shm::HandleKindOf(handle)) {
      case shm::HandleKind::kFunction:
        return functions_.Find(handle);
      case shm::HandleKind::kKernel:
        return kernels_.Find(handle);
      default:
        return nullptr;
    }
  }
  // Files what the executor said in reply to kGetFunction and its kin. Null when the reply makes no sense.
  Kernel* File(const Reply& reply, uint64_t owner, const std::string& name);
  // A module or library ended.
  void RemoveOwner(uint64_t owner);
  // An attribute was set through `kernel`: both views of it change.
  void SetAttribute(Kernel* kernel, int id, int value);

 private:
  SlotTable<Kernel> functions_;
  SlotTable<Kernel> kernels_;
};

}  // namespace tally::client_shim
