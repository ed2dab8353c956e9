// What the client keeps about a kernel (CUfunction or CUkernel): how its parameters lie, and its attributes. Read on
// every launch without a lock.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "client-shim/state/kernel_attributes.h"
#include "client-shim/state/slot_table.h"
#include "client-shim/transport/channel.h"
#include "proto/shm/handles_abi.h"
#include "proto/shm/records_code_abi.h"

namespace tally::client_shim {

class Process;

struct Kernel {
  uint64_t handle = 0;
  uint64_t owner = 0;  // module or library
  std::string name;
  uint32_t num_parameters = 0;
  uint32_t parameter_bytes = 0;
  std::unique_ptr<shm::ParameterLayout[]> layout;
  KernelAttributes attributes;
  std::atomic<uint64_t> kernel_of_function{0};  // of a CUfunction: the CUkernel that it belongs to, 0 if not known

  // Of a CUkernel: its CUfunction in a context, 0 if that is not the one that was kept last.
  uint64_t FunctionIn(uint32_t context) const {
    const uint64_t kept = kept_function_.load(std::memory_order_acquire);
    return kept >> kContextShift == context + uint64_t{1} ? kept & kHandleMask : 0;
  }
  void KeepFunction(uint32_t context, uint64_t function) {
    kept_function_.store((context + uint64_t{1}) << kContextShift | function, std::memory_order_release);
  }
  // The other view of the same code, CUfunction or CUkernel; 0 if not known.
  uint64_t Twin() const {
    const uint64_t kernel = kernel_of_function.load(std::memory_order_acquire);
    return kernel != 0 ? kernel : kept_function_.load(std::memory_order_acquire) & kHandleMask;
  }

 private:
  // Context (plus one) and function in one word, so that no thread sees one of them with the other's predecessor.
  static constexpr int kContextShift = 48;
  static constexpr uint64_t kHandleMask = (uint64_t{1} << kContextShift) - 1;
  static_assert(shm::MakeHandle(shm::HandleKind::kFunction, 0xff, true, shm::kMaxHandleIndex) <= kHandleMask);
  static_assert(shm::kMaxContexts < 1 << 16);
  std::atomic<uint64_t> kept_function_{0};
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
  Kernel* File(const Process& process, const Reply& reply, uint64_t owner, const std::string& name);
  // A module or library ended.
  void RemoveOwner(uint64_t owner);
  // An attribute was set or read through `kernel`: both views of it on that device.
  void KeepAttribute(Kernel* kernel, int device, int id, int32_t value);

 private:
  SlotTable<Kernel> functions_;
  SlotTable<Kernel> kernels_;
};

}  // namespace tally::client_shim
