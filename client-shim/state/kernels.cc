#include "client-shim/state/kernels.h"

#include <cstring>
#include <utility>

#include "client-shim/state/process.h"

namespace tally::client_shim {
namespace {

void KeepAttributes(Kernel* kernel, int device, const shm::KernelDescription& description) {
  for (uint32_t id = 0; id < shm::kNumKernelAttributes; ++id) {
    if ((description.attribute_valid >> id & 1) != 0)
      kernel->attributes.Keep(device, static_cast<int>(id), description.attribute[id]);
  }
}

}  // namespace

Kernel* Kernels::File(const Process& process, const Reply& reply, uint64_t owner, const std::string& name) {
  if (reply.payload_bytes < sizeof(shm::KernelDescription)) return nullptr;
  const auto description = reply.Read<shm::KernelDescription>();
  const uint64_t layout_bytes = uint64_t{description.num_parameters} * sizeof(shm::ParameterLayout);
  if (layout_bytes > reply.payload_bytes - sizeof(description) || description.parameter_bytes > shm::kMaxParameterBytes)
    return nullptr;
  const CUdevice device = process.client_ordinal(description.device);
  if (Kernel* known = Find(description.handle); known != nullptr) {
    KeepAttributes(known, device, description);  // perhaps of another device
    return known;
  }

  auto kernel = std::make_unique<Kernel>();
  kernel->handle = description.handle;
  kernel->owner = owner;
  kernel->name = name;
  kernel->num_parameters = description.num_parameters;
  kernel->parameter_bytes = description.parameter_bytes;
  kernel->layout = std::make_unique<shm::ParameterLayout[]>(description.num_parameters);
  if (layout_bytes != 0) std::memcpy(kernel->layout.get(), reply.payload + sizeof(description), layout_bytes);
  for (uint32_t i = 0; i < description.num_parameters; ++i) {
    // The launch path copies by these numbers: they must stay inside the parameter bytes.
    const shm::ParameterLayout& parameter = kernel->layout[i];
    if (parameter.offset_bytes > description.parameter_bytes ||
        parameter.size_bytes > description.parameter_bytes - parameter.offset_bytes)
      return nullptr;
  }
  KeepAttributes(kernel.get(), device, description);

  switch (shm::HandleKindOf(description.handle)) {
    case shm::HandleKind::kFunction:
      return functions_.Insert(std::move(kernel));
    case shm::HandleKind::kKernel:
      return kernels_.Insert(std::move(kernel));
    default:
      return nullptr;
  }
}

void Kernels::RemoveOwner(uint64_t owner) {
  const auto is_doomed = [owner](const Kernel& kernel) { return kernel.owner == owner; };
  functions_.RemoveIf(is_doomed);
  kernels_.RemoveIf(is_doomed);
}

void Kernels::KeepAttribute(Kernel* kernel, int device, int id, int32_t value) {
  kernel->attributes.Keep(device, id, value);
  Kernel* twin = Find(kernel->Twin());
  if (twin != nullptr) twin->attributes.Keep(device, id, value);
}

}  // namespace tally::client_shim
