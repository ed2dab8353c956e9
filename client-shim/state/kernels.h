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
#include "client-shim/transport/lane.h"
#include "proto/shm/records_abi.h"

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
  // Of a CUkernel: its CUfunction in `function_context`. Of that function: the CUkernel. 0 if not known.
  std::atomic<uint64_t> twin{0};
  std::atomic<uint32_t> function_context{shm::kNoContext};
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
