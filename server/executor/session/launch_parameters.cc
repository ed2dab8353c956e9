#include "server/executor/session/launch_parameters.h"

#include <algorithm>

#include "server/executor/driver/launch_config.h"
#include "server/executor/session/kernel_ops.h"

namespace tally::server {

static_assert(sizeof(CUlaunchAttribute) == shm::kLaunchAttributeBytes);

bool IsKnownAttribute(CUlaunchAttributeID id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:  // a hint to the cache: reads and writes nothing
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return true;
    default:
      return false;
  }
}

CUresult LaunchParameters::ReadAttributes(ServedRequest& served, ClientNames& names, WireReader& in) {
  if (launch_.num_attributes > shm::kMaxLaunchAttributes) return served.Malformed("too many launch attributes");
  attributes_.resize(launch_.num_attributes);
  for (CUlaunchAttribute& attribute : attributes_) {
    in.TakeStruct(&attribute);
    // These two carry an event, which is a session's id until here; the third is filled in by the driver.
    CUevent* event = nullptr;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) event = &attribute.value.programmaticEvent.event;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
      event = &attribute.value.launchCompletionEvent.event;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
      attribute.value.deviceUpdatableKernelNode.devNode = nullptr;
    }
    if (!IsKnownAttribute(attribute.id)) return CUDA_ERROR_NOT_SUPPORTED;
    if (event != nullptr) {
      const auto handle = reinterpret_cast<uint64_t>(*event);
      if (const CUresult r = names.Find(shm::HandleKind::kEvent, handle, event); r != CUDA_SUCCESS) return r;
    }
  }
  return CUDA_SUCCESS;
}

CUresult LaunchParameters::Read(ServedRequest& served, ClientNames& names, WireReader& in) {
  in.TakeStruct(&launch_);
  if (const CUresult r = ReadAttributes(served, names, in); r != CUDA_SUCCESS) return r;
  if (launch_.parameter_bytes > shm::kMaxParameterBytes) return served.Malformed("too many parameter bytes");
  const std::span<const std::byte> bytes = in.TakeBytes(launch_.parameter_bytes);
  if (!in.AtEnd()) return served.Malformed();
  kernel_ = FindKernel(served.session(), launch_.function);
  if (kernel_ == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  block_ = bytes;
  auto* base = const_cast<std::byte*>(bytes.data());
  if (is_extra() && kernel_->gate) {
    with_gate_.assign(bytes.begin(), bytes.begin() + std::min<size_t>(bytes.size(), kernel_->gate->hidden_offset));
    with_gate_.resize(kernel_->gate->hidden_offset + sizeof(device::GateParameters));
    base = with_gate_.data();
  }
  if (is_extra()) {
    extra_bytes_ = kernel_->gate ? with_gate_.size() : bytes.size();
    extra_[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    extra_[1] = base;
    extra_[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    extra_[3] = &extra_bytes_;
    extra_[4] = CU_LAUNCH_PARAM_END;
    return CUDA_SUCCESS;
  }
  if (bytes.size() < kernel_->parameter_bytes) return served.Malformed("fewer parameter bytes than the kernel takes");
  pointers_.resize(kernel_->layout.size() + 1);  // never a null array
  for (size_t i = 0; i < kernel_->layout.size(); ++i) pointers_[i] = base + kernel_->layout[i].offset_bytes;
  pointers_.back() = kernel_->gate ? &no_gate_ : nullptr;
  return CUDA_SUCCESS;
}

CUresult LaunchParameters::ReadQuery(ServedRequest& served, ClientNames& names, WireReader& in,
                                     shm::ClusterQuery* query) {
  in.TakeStruct(query);
  launch_ = query->config;
  if (const CUresult r = ReadAttributes(served, names, in); r != CUDA_SUCCESS) return r;
  if (!in.AtEnd()) return served.Malformed();
  kernel_ = FindKernel(served.session(), launch_.function);
  return kernel_ != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUlaunchConfig LaunchParameters::Config(CUstream stream) {
  return LaunchConfig(launch_.grid, launch_.block, launch_.shared_bytes, stream, attributes_);
}

}  // namespace tally::server
