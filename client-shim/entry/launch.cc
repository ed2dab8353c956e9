// CUDA manual: Execution Control. The hottest path of the shim: arguments are checked, and written straight into the
// ring.
#include <cstring>

#include "client-shim/entry/launch_record.h"
#include "client-shim/state/process.h"
#include "client-shim/state/refusals.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

// A kernel runs on the current device or not at all.
bool IsElsewhere(const Process& process, uint64_t stream) {
  const uint32_t context = ContextOfStream(stream);
  return context != shm::kNoContext && process.contexts[context].device != process.current_device();
}

// Null `node` unless the launch is to become a device-updatable node of a captured graph: then the executor answers
// with the device's name for it.
CUresult Launch(const LaunchArguments& arguments, CUstream stream, CUgraphDeviceNode* node = nullptr) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  PreparedLaunch prepared;
  if (const CUresult result = PrepareLaunch(*call.process, arguments, &prepared); result != CUDA_SUCCESS) return result;
  if (const CUresult result = ResolveStreamForWork(*call.process, stream, &prepared.launch.stream);
      result != CUDA_SUCCESS)
    return result;
  if (call.process->num_devices() > 1 && IsElsewhere(*call.process, prepared.launch.stream))
    return CUDA_ERROR_INVALID_HANDLE;
  std::byte* room =
      call.lane->Begin(shm::Op::kLaunch, static_cast<uint32_t>(sizeof(shm::Launch)) + prepared.tail_bytes());
  if (room == nullptr) return call.lane->failure();
  std::memcpy(room, &prepared.launch, sizeof(prepared.launch));
  WriteLaunchTail(prepared, room + sizeof(prepared.launch));
  if (node == nullptr) [[likely]] {
    call.lane->Post();
    return CUDA_SUCCESS;
  }
  const Reply reply = call.lane->Call();
  if (reply.result == CUDA_SUCCESS) *node = reinterpret_cast<CUgraphDeviceNode>(reply.Read<uint64_t>());
  return reply.result;
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
  return Launch(
      {f, {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, kernelParams, extra},
      hStream);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream, void** kernelParams) {
  // Whether all blocks fit at once is found here, as natively: the answer is memorised per kernel and shape.
  LaunchArguments arguments{
      f, {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, kernelParams, nullptr};
  arguments.flags = shm::kLaunchCooperative;
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
  return Launch(arguments, hStream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra) {
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
  return Launch({f,
                 {config->gridDimX, config->gridDimY, config->gridDimZ},
                 {config->blockDimX, config->blockDimY, config->blockDimZ},
                 config->sharedMemBytes,
                 kernelParams,
                 extra,
                 config->attrs,
                 config->numAttrs,
                 shm::kLaunchEx},
                config->hStream, node);
}

}  // namespace tally::client_shim::entry
