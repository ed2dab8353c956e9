// CUDA manual: Execution Control. The hottest path of the shim: arguments are checked, and written straight into the
// ring.
#include <cstring>

#include "client-shim/entry/launch_record.h"
#include "client-shim/state/process.h"
#include "client-shim/state/refusals.h"
#include "client-shim/transport/declared_segments.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

// A kernel runs on the current device or not at all.
bool IsElsewhere(const Process& process, uint64_t stream) {
  const uint32_t context = ContextOfStream(stream);
  return context != shm::kNoContext && process.contexts[context].device != process.current_device();
}

// Null `node` unless the launch is to become a device-updatable node of a captured graph: then the executor answers
// with the device's name for it. `declared`: of this launch, or null.
CUresult Launch(CUfunction function, const CUlaunchConfig& config, void** parameters, void** extra, uint16_t flags,
                const DeclaredSegments* declared, CUgraphDeviceNode* node = nullptr) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  shm::Launch launch;
  const Kernel* kernel = nullptr;
  if (const CUresult result =
          DescribeLaunch(*call.process, function, config, parameters, extra, flags, &launch, &kernel);
      result != CUDA_SUCCESS)
    return result;
  if (const CUresult result = ResolveStreamForWork(*call.process, config.hStream, &launch.stream);
      result != CUDA_SUCCESS)
    return result;
  if (call.process->num_devices() > 1 && IsElsewhere(*call.process, launch.stream)) return CUDA_ERROR_INVALID_HANDLE;
  const uint32_t bytes = static_cast<uint32_t>(sizeof(shm::Launch)) + LaunchTailBytes(launch);
  const uint32_t declared_bytes = declared != nullptr ? declared->Announce(&launch) : 0;
  const uint32_t padding = declared_bytes != 0 ? -bytes % 8 : 0;
  std::byte* room = call.channel->Begin(shm::Op::kLaunch, bytes + padding + declared_bytes);
  if (room == nullptr) return call.channel->failure();
  WriteLaunch(launch, *kernel, config, parameters, extra, room);
  if (declared_bytes != 0) [[unlikely]] {
    std::memset(room + bytes, 0, padding);  // not what the ring held before
    std::memcpy(room + bytes + padding, declared->boxes, declared_bytes);
  }
  if (node == nullptr) [[likely]] {
    call.channel->Post();
    return CUDA_SUCCESS;
  }
  const Reply reply = call.channel->Call();
  if (reply.result == CUDA_SUCCESS) *node = reinterpret_cast<CUgraphDeviceNode>(reply.Read<uint64_t>());
  return reply.result;
}

CUlaunchConfig ConfigOf(unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                        unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream) {
  CUlaunchConfig config;
  config.gridDimX = grid_x;
  config.gridDimY = grid_y;
  config.gridDimZ = grid_z;
  config.blockDimX = block_x;
  config.blockDimY = block_y;
  config.blockDimZ = block_z;
  config.sharedMemBytes = shared_bytes;
  config.hStream = stream;
  config.attrs = nullptr;
  config.numAttrs = 0;
  return config;
}

// Attributes whose meaning, and thus what their value points at, is known.
constexpr uint64_t kKnownAttributes =
    1u << CU_LAUNCH_ATTRIBUTE_IGNORE | 1u << CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW |
    1u << CU_LAUNCH_ATTRIBUTE_COOPERATIVE | 1u << CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY |
    1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION | 1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE |
    1u << CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION | 1u << CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT |
    1u << CU_LAUNCH_ATTRIBUTE_PRIORITY | 1u << CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP |
    1u << CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN | 1u << CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION |
    1u << CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT | 1u << CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE |
    1u << CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT |
    1u << CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING;

}  // namespace

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra) {
  return Launch(f, ConfigOf(gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream),
                kernelParams, extra, 0, TakeDeclared());
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream, void** kernelParams) {
  const DeclaredSegments* const declared = TakeDeclared();
  // Whether all blocks fit at once is found here, as natively: the answer is memorised per kernel and shape.
  const uint64_t threads = uint64_t{blockDimX} * blockDimY * blockDimZ;
  int per_multiprocessor = 0;
  if (threads != 0 && threads <= 1024 &&
      entry::cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, f, static_cast<int>(threads),
                                                         sharedMemBytes) == CUDA_SUCCESS) {
    const Process* process = CurrentProcess();
    const auto num_multiprocessors = static_cast<uint64_t>(
        process->device(process->current_device()).attribute[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT]);
    if (uint64_t{gridDimX} * gridDimY * gridDimZ > static_cast<uint64_t>(per_multiprocessor) * num_multiprocessors)
      return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return Launch(f, ConfigOf(gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream),
                kernelParams, nullptr, shm::kLaunchCooperative, declared);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra) {
  const DeclaredSegments* const declared = TakeDeclared();
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphDeviceNode* node = nullptr;
  for (unsigned int i = 0; i < config->numAttrs && config->attrs != nullptr; ++i) {
    CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id >= 64 || (kKnownAttributes >> attribute.id & 1) == 0)
      return RefuseUse("cuLaunchKernelEx: a launch attribute that this version does not know");
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE &&
        attribute.value.deviceUpdatableKernelNode.deviceUpdatable != 0)
      node = &attribute.value.deviceUpdatableKernelNode.devNode;
  }
  return Launch(f, *config, kernelParams, extra, shm::kLaunchEx, declared, node);
}

}  // namespace tally::client_shim::entry
