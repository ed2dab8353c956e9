#include "sim-driver/api/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <unordered_set>

#include "sim-driver/api/box_observer.h"
#include "sim-driver/api/capture.h"
#include "sim-driver/api/driver_waits.h"
#include "sim-driver/api/error.h"
#include "sim-driver/api/occupancy.h"

namespace tally::sim_driver {
namespace {

constexpr uint32_t kMaxGridX = 2147483647;
constexpr uint32_t kMaxGridYz = 65535;
constexpr uint32_t kMaxBlockZ = 64;
constexpr unsigned kMaxAttributes = 64;

void CheckShape(const Dim3& grid, const Dim3& block) {
  Require(grid.x != 0 && grid.y != 0 && grid.z != 0 && block.x != 0 && block.y != 0 && block.z != 0,
          CUDA_ERROR_INVALID_VALUE);
  Require(grid.x <= kMaxGridX && grid.y <= kMaxGridYz && grid.z <= kMaxGridYz, CUDA_ERROR_INVALID_VALUE);
  Require(block.x <= MachineLimits::kMaxThreadsPerBlock && block.y <= MachineLimits::kMaxThreadsPerBlock &&
              block.z <= kMaxBlockZ && block.Count() <= MachineLimits::kMaxThreadsPerBlock,
          CUDA_ERROR_INVALID_VALUE);
}

void RefuseUnsupported(const Kernel& kernel) {
  if (kernel.unsupported.empty()) return;
  static std::mutex mutex;
  static auto& told = *new std::unordered_set<std::string>();
  const std::lock_guard lock(mutex);
  if (told.insert(kernel.name).second) {
    fmt::print(stderr, "tally sim: kernel '{}' is refused: {} is not supported by the software device\n", kernel.name,
               kernel.unsupported);
  }
  Fail(CUDA_ERROR_NOT_SUPPORTED);
}

void ApplyAttributes(KernelOperation& operation, std::span<const CUlaunchAttribute> attributes) {
  for (const CUlaunchAttribute& attribute : attributes) {
    const CUlaunchAttributeValue& value = attribute.value;
    switch (static_cast<int>(attribute.id)) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        operation.is_cooperative = operation.is_cooperative || value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
        const auto& dimension = value.clusterDim;
        // All zero: as if not given.
        if (dimension.x == 0 && dimension.y == 0 && dimension.z == 0) break;
        Require(dimension.x != 0 && dimension.y != 0 && dimension.z != 0, CUDA_ERROR_INVALID_CLUSTER_SIZE);
        operation.cluster = {dimension.x, dimension.y, dimension.z};
        break;
      }
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        operation.has_priority = true;
        operation.priority = std::clamp(value.priority, -5, 0);
        break;
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        Require(value.deviceUpdatableKernelNode.deviceUpdatable == 0, CUDA_ERROR_NOT_SUPPORTED);
        break;
      // Hints about caches, scheduling and overlap that cannot change a result.
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      // Recorded by IssueLaunch().
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        break;
      default:
        Fail(CUDA_ERROR_INVALID_VALUE);
    }
  }
}

void CheckCluster(KernelOperation& operation, const KernelCode& code) {
  Dim3& cluster = operation.cluster;
  const auto& required = code.settings->required_cluster;
  const Dim3 wanted{static_cast<uint32_t>(required[0].load()), static_cast<uint32_t>(required[1].load()),
                    static_cast<uint32_t>(required[2].load())};
  const bool is_given = cluster.x != 0;
  if (wanted.x != 0) {
    if (is_given) {
      Require(cluster.x == wanted.x && cluster.y == wanted.y && cluster.z == wanted.z, CUDA_ERROR_INVALID_CLUSTER_SIZE);
    }
    cluster = {wanted.x, std::max(wanted.y, 1U), std::max(wanted.z, 1U)};
  } else if (!is_given) {
    Require(!code.kernel().is_explicit_cluster, CUDA_ERROR_INVALID_CLUSTER_SIZE);
    cluster = {1, 1, 1};
    return;
  }
  // A product of three could wrap: each factor is checked first.
  constexpr uint32_t kMost = MachineLimits::kMaxBlocksPerCluster;
  Require(cluster.x <= kMost && cluster.y <= kMost && cluster.z <= kMost && cluster.Count() <= kMost,
          CUDA_ERROR_INVALID_CLUSTER_SIZE);
  const Dim3& grid = operation.grid;
  Require(grid.x % cluster.x == 0 && grid.y % cluster.y == 0 && grid.z % cluster.z == 0,
          CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

}  // namespace

void PackParameters(KernelOperation& operation, void** parameters, void** extra) {
  const Kernel& kernel = operation.function->code.kernel();
  operation.parameter_pointers.clear();
  operation.parameters.assign(kernel.parameter_bytes, std::byte{0});
  Require(parameters == nullptr || extra == nullptr, CUDA_ERROR_INVALID_VALUE);
  if (parameters != nullptr) {
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
      const KernelParameter& parameter = kernel.parameters[i];
      Require(parameters[i] != nullptr, CUDA_ERROR_INVALID_VALUE);
      std::memcpy(operation.parameters.data() + parameter.offset_bytes, parameters[i], parameter.size_bytes);
    }
    return;
  }
  const void* buffer = nullptr;
  const size_t* size = nullptr;
  // Key, value, key, value, end: a longer list than the known keys allow is a list without its end.
  constexpr int kMaxPairs = 8;
  for (int i = 0; extra != nullptr && extra[2 * i] != CU_LAUNCH_PARAM_END; ++i) {
    Require(i < kMaxPairs, CUDA_ERROR_INVALID_VALUE);
    if (extra[2 * i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[2 * i + 1];
    } else if (extra[2 * i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const size_t*>(extra[2 * i + 1]);
    } else {
      Fail(CUDA_ERROR_INVALID_VALUE);
    }
  }
  if (kernel.parameters.empty()) return;
  Require(buffer != nullptr && size != nullptr, CUDA_ERROR_INVALID_VALUE);
  const KernelParameter& last = kernel.parameters.back();
  Require(*size >= last.offset_bytes + last.size_bytes, CUDA_ERROR_INVALID_VALUE);
  std::memcpy(operation.parameters.data(), buffer, std::min<size_t>(*size, kernel.parameter_bytes));
}

KernelOperation CheckedLaunch(const LaunchArguments& arguments, const ContextPtr& context) {
  Require(arguments.function != nullptr, CUDA_ERROR_INVALID_HANDLE);
  KernelOperation operation;
  operation.function = FindFunction(arguments.function, context);
  operation.module = operation.function->module.lock();
  Require(operation.module && operation.module->context.lock() == context, CUDA_ERROR_INVALID_HANDLE);
  operation.was_given_as_kernel = operation.function->handle != arguments.function;
  if (operation.was_given_as_kernel) operation.library_kernel = reinterpret_cast<CUkernel>(arguments.function);
  const KernelCode& code = operation.function->code;
  const Kernel& kernel = code.kernel();
  RefuseUnsupported(kernel);

  operation.grid = arguments.grid;
  operation.block = arguments.block;
  operation.cluster = {0, 0, 0};
  operation.dynamic_shared_bytes = arguments.dynamic_shared_bytes;
  operation.observer = DeclaredBoxes();
  operation.is_cooperative = arguments.is_cooperative;
  CheckShape(operation.grid, operation.block);
  Require(arguments.attributes.size() <= kMaxAttributes, CUDA_ERROR_INVALID_VALUE);
  ApplyAttributes(operation, arguments.attributes);
  operation.attributes.assign(arguments.attributes.begin(), arguments.attributes.end());
  CheckCluster(operation, code);

  const auto& fixed = kernel.required_block;
  Require(fixed[0] == 0 || (operation.block.x == fixed[0] && operation.block.y == std::max(fixed[1], 1U) &&
                            operation.block.z == std::max(fixed[2], 1U)),
          CUDA_ERROR_INVALID_VALUE);
  Require(operation.block.Count() <= MaxThreadsPerBlock(kernel), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  Require(operation.dynamic_shared_bytes <= static_cast<uint32_t>(code.settings->max_dynamic_shared_bytes.load()),
          CUDA_ERROR_INVALID_VALUE);
  if (operation.is_cooperative) {
    const uint64_t most = uint64_t{MachineLimits::kNumSms} *
                          MaxBlocksPerMultiprocessor(kernel, operation.block.Count(), operation.dynamic_shared_bytes);
    // Factors first: the product of three 32-bit numbers can wrap.
    const Dim3& grid = operation.grid;
    Require(grid.x <= most && uint64_t{grid.x} * grid.y <= most && grid.Count() <= most,
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  }
  PackParameters(operation, arguments.parameters, arguments.extra);
  return operation;
}

void IssueLaunch(const StreamUse& use, const LaunchArguments& arguments) {
  const LaunchTurn turn(*use.context);
  // Events first looked up, so that a bad one leaves nothing behind.
  struct Recorded {
    EventPtr event;
    unsigned char port;
  };
  std::vector<Recorded> events;
  for (const CUlaunchAttribute& attribute : arguments.attributes) {
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
      events.push_back({FindEvent(attribute.value.programmaticEvent.event), CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC});
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
      events.push_back(
          {FindEvent(attribute.value.launchCompletionEvent.event), CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER});
    }
  }
  Issue(use, CheckedLaunch(arguments, use.context));
  // Later than the earliest moment that the attribute promises, which is always allowed.
  for (const Recorded& recorded : events) IssueEventRecord(use, recorded.event, /*is_external=*/false, recorded.port);
}

}  // namespace tally::sim_driver
