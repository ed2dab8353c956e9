#include "client-shim/entry/launch_record.h"

#include <cstring>

namespace tally::client_shim {
namespace {

static_assert(sizeof(CUlaunchAttribute) == shm::kLaunchAttributeBytes);

// Reads the caller's `extra` list: {1, buffer, 2, &size, 0}.
CUresult ReadExtra(void** extra, const void** bytes, size_t* size) {
  bool has_size = false;
  for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      *bytes = extra[i + 1];
    } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1] != nullptr) {
      *size = *static_cast<size_t*>(extra[i + 1]);
      has_size = true;
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return *bytes != nullptr && has_size && *size <= shm::kMaxParameterBytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CheckShape(const Process& process, const Kernel& kernel, const shm::Launch& launch) {
  const CUdevice device = process.current_device();
  const int32_t* limit = process.device(device).attribute;
  const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  for (int axis = 0; axis < 3; ++axis) {
    if (launch.grid[axis] == 0 || launch.block[axis] == 0) return CUDA_ERROR_INVALID_VALUE;
    if (launch.grid[axis] > static_cast<uint32_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + axis]) ||
        launch.block[axis] > static_cast<uint32_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + axis]))
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (threads > static_cast<uint64_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK]))
    return CUDA_ERROR_INVALID_VALUE;
  if (const int32_t most = kernel.attributes.Get(device, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
      most >= 0 && threads > static_cast<uint64_t>(most)) {
    // Too many registers for so many threads, or more than __launch_bounds__ promised.
    const int32_t registers = kernel.attributes.Get(device, CU_FUNC_ATTRIBUTE_NUM_REGS);
    const auto available = static_cast<uint64_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK]);
    return registers > 0 && threads * static_cast<uint64_t>(registers) > available ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
                                                                                   : CUDA_ERROR_INVALID_VALUE;
  }
  if (const int32_t most = kernel.attributes.Get(device, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
      most >= 0 && launch.shared_bytes > static_cast<uint32_t>(most))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

// The launch will record it.
void StopTrackingEvent(const Process& process, const CUlaunchAttribute& attribute) {
  CUevent event = nullptr;
  if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) event = attribute.value.programmaticEvent.event;
  if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) event = attribute.value.launchCompletionEvent.event;
  if (event == nullptr) return;
  if (Event* known = process.events.Find(reinterpret_cast<uint64_t>(event)); known != nullptr) known->StopTracking();
}

}  // namespace

CUresult DescribeLaunch(const Process& process, CUfunction function, const CUlaunchConfig& config, void** parameters,
                        void** extra, uint16_t flags, shm::Launch* launch, const Kernel** found) {
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Kernel* kernel = process.kernels.Find(reinterpret_cast<uint64_t>(function));
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *launch = {.function = kernel->handle,
             .stream = 0,
             .grid = {config.gridDimX, config.gridDimY, config.gridDimZ},
             .block = {config.blockDimX, config.blockDimY, config.blockDimZ},
             .shared_bytes = config.sharedMemBytes,
             .parameter_bytes = kernel->parameter_bytes,
             .num_attributes = static_cast<uint16_t>(config.numAttrs),
             .flags = flags,
             .num_declared_reads = 0,
             .num_declared_writes = 0};
  if (const CUresult result = CheckShape(process, *kernel, *launch); result != CUDA_SUCCESS) return result;
  if (config.numAttrs > shm::kMaxLaunchAttributes || (config.numAttrs != 0 && config.attrs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;

  for (uint32_t i = 0; i < config.numAttrs; ++i) StopTrackingEvent(process, config.attrs[i]);

  *found = kernel;
  if (extra != nullptr) {
    if (parameters != nullptr) return CUDA_ERROR_INVALID_VALUE;
    const void* bytes = nullptr;
    size_t size = 0;
    if (const CUresult result = ReadExtra(extra, &bytes, &size); result != CUDA_SUCCESS) return result;
    launch->parameter_bytes = static_cast<uint32_t>(size);
    launch->flags |= shm::kLaunchExtra;
    return CUDA_SUCCESS;
  }
  if (kernel->num_parameters == 0) return CUDA_SUCCESS;
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < kernel->num_parameters; ++i) {
    if (parameters[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

void WriteLaunch(const shm::Launch& launch, const Kernel& kernel, const CUlaunchConfig& config, void** parameters,
                 void** extra, std::byte* out) {
  std::memcpy(out, &launch, sizeof(launch));
  out += sizeof(launch);
  const size_t attribute_bytes = size_t{launch.num_attributes} * shm::kLaunchAttributeBytes;
  if (attribute_bytes != 0) std::memcpy(out, config.attrs, attribute_bytes);
  out += attribute_bytes;
  if (extra != nullptr) {
    const void* bytes = nullptr;
    size_t size = 0;
    if (ReadExtra(extra, &bytes, &size) == CUDA_SUCCESS && size == launch.parameter_bytes)
      std::memcpy(out, bytes, size);
    return;
  }
  uint32_t end = 0;
  for (uint32_t i = 0; i < kernel.num_parameters; ++i) {
    const shm::ParameterLayout parameter = kernel.layout[i];
    // Holes between parameters would show what the ring held before.
    if (parameter.offset_bytes > end) std::memset(out + end, 0, parameter.offset_bytes - end);
    std::byte* place = out + parameter.offset_bytes;
    switch (parameter.size_bytes) {  // pointers and ints, by far the most: one move instead of a call
      case 8:
        std::memcpy(place, parameters[i], 8);
        break;
      case 4:
        std::memcpy(place, parameters[i], 4);
        break;
      default:
        std::memcpy(place, parameters[i], parameter.size_bytes);
    }
    end = parameter.offset_bytes + parameter.size_bytes;
  }
}

}  // namespace tally::client_shim
