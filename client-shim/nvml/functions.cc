// NVML's functions whose answer depends on the tenant: which GPUs there are, how much memory, whose processes. All
// others are trampolines (make_library.py).
//
// Where there is no tallyd, everything goes to NVIDIA's library as it comes. Where there is none of those, devices are
// our own, and what we do not know is NVML_ERROR_FUNCTION_NOT_FOUND.
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>

#include "client-shim/nvml/nvml_abi.h"
#include "client-shim/nvml/own_view.h"
#include "client-shim/nvml/real_library.h"

// Also for make_library.py, which makes no trampoline of it. No exception crosses it.
#define NVML_FUNCTION(name, ...) extern "C" __attribute__((visibility("default"))) uint32_t name(__VA_ARGS__)

namespace tally::nvml {
namespace {

std::atomic<int> g_num_inits{0};
std::atomic<bool> g_has_real{false};  // NVIDIA's library is initialised

// Our own devices, where there is no library of NVIDIA's.
char g_own_devices[shm::kViewGpus];

std::string NameOf(const uint8_t (&uuid)[16]) {
  std::string name = "GPU-";
  char digits[3];
  for (size_t i = 0; i < sizeof(uuid); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) name += '-';
    std::snprintf(digits, sizeof(digits), "%02x", uuid[i]);
    name += digits;
  }
  return name;
}

std::string BusIdOf(const shm::ViewGpu& gpu, int domain_digits) {
  char text[32];
  std::snprintf(text, sizeof(text), "%0*X:%02X:%02X.0", domain_digits, gpu.pci_domain, gpu.pci_bus, gpu.pci_device);
  return text;
}

Device DeviceOf(const shm::TenantViewReply& view, size_t index) {
  if (!g_has_real) return reinterpret_cast<Device>(&g_own_devices[index]);
  Device device = nullptr;
  const auto find = RealFunctionAs<uint32_t(const char*, Device*)>("nvmlDeviceGetHandleByUUID");
  if (find == nullptr || find(NameOf(view.gpu[index].uuid).c_str(), &device) != kSuccess) return nullptr;
  return device;
}

// Which of the view's GPUs it is; nullopt: none (a part of one, or nonsense).
std::optional<size_t> IndexOf(const shm::TenantViewReply& view, Device device) {
  for (size_t i = 0; device != nullptr && i < view.num_gpus; ++i) {
    if (DeviceOf(view, i) == device) return i;
  }
  return std::nullopt;
}

// `ask` with a GPU of the view; else what NVIDIA's library says.
template <typename Ask, typename... Arguments>
uint32_t Answer(const View& view, const char* name, const Ask& ask, Device device, Arguments... arguments) {
  if (g_num_inits == 0) return kUninitialized;
  if (view != nullptr) {
    if (const auto index = IndexOf(*view, device)) return ask(view->gpu[*index], *index);
  }
  const auto real = RealFunctionAs<uint32_t(Device, Arguments...)>(name);
  if (g_has_real && real != nullptr) return real(device, arguments...);
  return view != nullptr || !g_has_real ? kInvalidArgument : kFunctionNotFound;
}

// The same for functions without a device.
template <typename... Arguments>
uint32_t PassOn(const char* name, Arguments... arguments) {
  const auto real = RealFunctionAs<uint32_t(Arguments...)>(name);
  return g_has_real && real != nullptr ? real(arguments...) : uint32_t{kFunctionNotFound};
}

uint32_t PutText(const std::string& text, char* to, uint32_t size) {
  if (to == nullptr) return kInvalidArgument;
  if (text.size() >= size) return kInsufficientSize;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return kSuccess;
}

uint32_t Start(const char* name) {
  const View view = AskForView();
  const auto real = RealFunctionAs<uint32_t()>(name);
  const uint32_t result = real != nullptr ? real() : uint32_t{kDriverNotLoaded};
  if (result == kSuccess) g_has_real = true;
  if (result != kSuccess && (view == nullptr || view->num_gpus == 0)) return result;
  ++g_num_inits;
  return kSuccess;
}

uint32_t Count(const char* name, uint32_t* count) {
  if (g_num_inits == 0) return kUninitialized;
  if (count == nullptr) return kInvalidArgument;
  const View view = LastView();
  if (view == nullptr) return PassOn(name, count);
  *count = view->num_gpus;
  return kSuccess;
}

template <typename IsIt>
uint32_t FindDevice(Device* device, const IsIt& is_it) {
  if (g_num_inits == 0) return kUninitialized;
  if (device == nullptr) return kInvalidArgument;
  const View view = LastView();
  for (size_t i = 0; view != nullptr && i < view->num_gpus; ++i) {
    if (!is_it(view->gpu[i], i)) continue;
    *device = DeviceOf(*view, i);
    return *device != nullptr ? kSuccess : kNotFound;
  }
  return kNotFound;
}

uint32_t ByIndex(const char* name, uint32_t index, Device* device) {
  if (g_num_inits != 0 && LastView() == nullptr) return PassOn(name, index, device);
  const uint32_t result = FindDevice(device, [&](const shm::ViewGpu&, size_t i) { return i == index; });
  return result == kNotFound ? uint32_t{kInvalidArgument} : result;
}

uint32_t ByBusId(const char* name, const char* bus_id, Device* device) {
  if (g_num_inits != 0 && LastView() == nullptr) return PassOn(name, bus_id, device);
  if (bus_id == nullptr) return kInvalidArgument;
  return FindDevice(device, [&](const shm::ViewGpu& gpu, size_t) {
    return ::strcasecmp(bus_id, BusIdOf(gpu, 8).c_str()) == 0 || ::strcasecmp(bus_id, BusIdOf(gpu, 4).c_str()) == 0;
  });
}

// As cuMemGetInfo says it; `free_bytes` is what the device itself has.
Memory MemoryOf(const shm::ViewGpu& gpu, std::optional<uint64_t> free_bytes) {
  Memory memory{};
  memory.total = gpu.total_memory_bytes;
  if (gpu.limit_bytes != 0) memory.total = std::min(memory.total, gpu.limit_bytes);
  memory.free = memory.total - std::min(gpu.held_bytes, memory.total);
  if (free_bytes) memory.free = std::min(memory.free, *free_bytes);
  memory.used = memory.total - memory.free;
  return memory;
}

// Of the tenant; nullopt: it has no limit, and what NVIDIA's library says is right.
std::optional<Memory> OwnMemory(const shm::ViewGpu& gpu, Device device) {
  if (!g_has_real) return MemoryOf(gpu, std::nullopt);
  if (gpu.limit_bytes == 0) return std::nullopt;
  Memory real{};
  const auto ask = RealFunctionAs<uint32_t(Device, Memory*)>("nvmlDeviceGetMemoryInfo");
  const bool is_known = ask != nullptr && ask(device, &real) == kSuccess;
  return MemoryOf(gpu, is_known ? std::optional(real.free) : std::nullopt);
}

template <typename Process>
uint32_t Processes(const char* name, Device device, uint32_t* count, Process* processes) {
  const View view = AskForView();
  const auto ask = [&](const shm::ViewGpu&, size_t) -> uint32_t {
    if (count == nullptr) return kInvalidArgument;
    const uint32_t room = processes != nullptr ? *count : 0;
    *count = view->num_processes;
    if (room < view->num_processes) return kInsufficientSize;
    for (uint32_t i = 0; i < view->num_processes; ++i) {
      Process process{};
      process.pid = static_cast<uint32_t>(view->process[i].pid);
      // NVML_VALUE_NOT_AVAILABLE: of several GPUs nobody counts by each.
      process.used_bytes = view->num_gpus == 1 ? view->process[i].held_bytes : UINT64_MAX;
      if constexpr (requires { process.gpu_instance; }) process.gpu_instance = process.compute_instance = kNoInstance;
      std::memcpy(&processes[i], &process, sizeof(process));
    }
    return kSuccess;
  };
  return Answer(view, name, ask, device, count, processes);
}

// Graphics, and servers of MPS: no tenant has any.
uint32_t NoProcesses(const char* name, Device device, uint32_t* count, void* processes) {
  const auto ask = [&](const shm::ViewGpu&, size_t) -> uint32_t {
    if (count == nullptr) return kInvalidArgument;
    *count = 0;
    return kSuccess;
  };
  return Answer(LastView(), name, ask, device, count, processes);
}

// Whose answers would be about other tenants.
uint32_t Hidden(const char* name, Device device, void* first, void* second, void* third) {
  return Answer(
      LastView(), name, [](const shm::ViewGpu&, size_t) -> uint32_t { return kNotSupported; }, device, first, second,
      third);
}

// How much of the time since it was asked last the tenant had work there.
uint32_t UtilizationOf(const shm::TenantViewReply& view, size_t index) {
  static std::mutex mutex;
  static uint64_t busy_ns[shm::kViewGpus], at_ns[shm::kViewGpus];
  const std::lock_guard lock(mutex);
  const uint64_t busy = view.gpu[index].busy_ns - std::min(busy_ns[index], view.gpu[index].busy_ns);
  const uint64_t time = view.now_ns - at_ns[index];
  const bool is_first = at_ns[index] == 0;
  busy_ns[index] = view.gpu[index].busy_ns;
  at_ns[index] = view.now_ns;
  return is_first || time == 0 ? 0 : static_cast<uint32_t>(std::min<uint64_t>(100, busy * 100 / time));
}

const char* TextOf(uint32_t result) {
  switch (result) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    case kFunctionNotFound:
      return "Function Not Found";
    case kArgumentVersionMismatch:
      return "Argument Version Mismatch";
    default:
      return "Unknown Error";
  }
}

}  // namespace
}  // namespace tally::nvml

using namespace tally::nvml;
using tally::shm::ViewGpu;

NVML_FUNCTION(nvmlInit) noexcept try { return Start("nvmlInit"); } catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlInit_v2) noexcept try { return Start("nvmlInit_v2"); } catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlInitWithFlags, uint32_t) noexcept try { return Start("nvmlInit_v2"); } catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlShutdown) noexcept try {
  if (g_num_inits == 0) return kUninitialized;
  --g_num_inits;
  const auto real = RealFunctionAs<uint32_t()>("nvmlShutdown");
  if (g_has_real && real != nullptr) real();
  return kSuccess;
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetCount, uint32_t* count) noexcept try {
  return Count("nvmlDeviceGetCount", count);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetCount_v2, uint32_t* count) noexcept try {
  return Count("nvmlDeviceGetCount_v2", count);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetHandleByIndex, uint32_t index, Device* device) noexcept try {
  return ByIndex("nvmlDeviceGetHandleByIndex", index, device);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetHandleByIndex_v2, uint32_t index, Device* device) noexcept try {
  return ByIndex("nvmlDeviceGetHandleByIndex_v2", index, device);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetHandleByPciBusId, const char* bus_id, Device* device) noexcept try {
  return ByBusId("nvmlDeviceGetHandleByPciBusId", bus_id, device);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetHandleByPciBusId_v2, const char* bus_id, Device* device) noexcept try {
  return ByBusId("nvmlDeviceGetHandleByPciBusId_v2", bus_id, device);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetHandleByUUID, const char* uuid, Device* device) noexcept try {
  if (g_num_inits != 0 && LastView() == nullptr) return PassOn("nvmlDeviceGetHandleByUUID", uuid, device);
  if (uuid == nullptr) return kInvalidArgument;
  return FindDevice(device, [&](const ViewGpu& gpu, size_t) { return NameOf(gpu.uuid) == uuid; });
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetIndex, Device device, uint32_t* index) noexcept try {
  const auto ask = [&](const ViewGpu&, size_t i) -> uint32_t {
    if (index == nullptr) return kInvalidArgument;
    *index = static_cast<uint32_t>(i);
    return kSuccess;
  };
  return Answer(LastView(), "nvmlDeviceGetIndex", ask, device, index);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetMemoryInfo, Device device, Memory* memory) noexcept try {
  const auto ask = [&](const ViewGpu& gpu, size_t) -> uint32_t {
    if (memory == nullptr) return kInvalidArgument;
    const auto own = OwnMemory(gpu, device);
    if (!own) return PassOn("nvmlDeviceGetMemoryInfo", device, memory);
    *memory = *own;
    return kSuccess;
  };
  return Answer(AskForView(), "nvmlDeviceGetMemoryInfo", ask, device, memory);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetMemoryInfo_v2, Device device, MemoryV2* memory) noexcept try {
  const auto ask = [&](const ViewGpu& gpu, size_t) -> uint32_t {
    if (memory == nullptr) return kInvalidArgument;
    if (memory->version != kMemoryV2) return kArgumentVersionMismatch;
    const auto own = OwnMemory(gpu, device);
    if (!own) return PassOn("nvmlDeviceGetMemoryInfo_v2", device, memory);
    *memory = {kMemoryV2, own->total, 0, own->free, own->used};
    return kSuccess;
  };
  return Answer(AskForView(), "nvmlDeviceGetMemoryInfo_v2", ask, device, memory);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetComputeRunningProcesses, Device device, uint32_t* count, ProcessV1* processes) noexcept try {
  return Processes("nvmlDeviceGetComputeRunningProcesses", device, count, processes);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetGraphicsRunningProcesses, Device device, uint32_t* count, void* processes) noexcept try {
  return NoProcesses("nvmlDeviceGetGraphicsRunningProcesses", device, count, processes);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetMPSComputeRunningProcesses, Device device, uint32_t* count, void* processes) noexcept try {
  return NoProcesses("nvmlDeviceGetMPSComputeRunningProcesses", device, count, processes);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetComputeRunningProcesses_v2, Device device, uint32_t* count, ProcessV2* processes)
noexcept try {
  return Processes("nvmlDeviceGetComputeRunningProcesses_v2", device, count, processes);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetGraphicsRunningProcesses_v2, Device device, uint32_t* count, void* processes) noexcept try {
  return NoProcesses("nvmlDeviceGetGraphicsRunningProcesses_v2", device, count, processes);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetMPSComputeRunningProcesses_v2, Device device, uint32_t* count, void* processes)
noexcept try {
  return NoProcesses("nvmlDeviceGetMPSComputeRunningProcesses_v2", device, count, processes);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetComputeRunningProcesses_v3, Device device, uint32_t* count, ProcessV2* processes)
noexcept try {
  return Processes("nvmlDeviceGetComputeRunningProcesses_v3", device, count, processes);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetGraphicsRunningProcesses_v3, Device device, uint32_t* count, void* processes) noexcept try {
  return NoProcesses("nvmlDeviceGetGraphicsRunningProcesses_v3", device, count, processes);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetMPSComputeRunningProcesses_v3, Device device, uint32_t* count, void* processes)
noexcept try {
  return NoProcesses("nvmlDeviceGetMPSComputeRunningProcesses_v3", device, count, processes);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetProcessUtilization, Device device, void* first, void* second, void* third) noexcept try {
  return Hidden("nvmlDeviceGetProcessUtilization", device, first, second, third);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetProcessesUtilizationInfo, Device device, void* first, void* second, void* third)
noexcept try {
  return Hidden("nvmlDeviceGetProcessesUtilizationInfo", device, first, second, third);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetRunningProcessDetailList, Device device, void* first, void* second, void* third)
noexcept try {
  return Hidden("nvmlDeviceGetRunningProcessDetailList", device, first, second, third);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetAccountingPids, Device device, void* first, void* second, void* third) noexcept try {
  return Hidden("nvmlDeviceGetAccountingPids", device, first, second, third);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetAccountingStats, Device device, void* first, void* second, void* third) noexcept try {
  return Hidden("nvmlDeviceGetAccountingStats", device, first, second, third);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetName, Device device, char* name, uint32_t length) noexcept try {
  const auto ask = [&](const ViewGpu& gpu, size_t) { return PutText(gpu.name, name, length); };
  return Answer(LastView(), "nvmlDeviceGetName", ask, device, name, length);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetUUID, Device device, char* uuid, uint32_t length) noexcept try {
  const auto ask = [&](const ViewGpu& gpu, size_t) { return PutText(NameOf(gpu.uuid), uuid, length); };
  return Answer(LastView(), "nvmlDeviceGetUUID", ask, device, uuid, length);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetUtilizationRates, Device device, Utilization* rates) noexcept try {
  const View view = AskForView();
  const auto ask = [&](const ViewGpu&, size_t index) -> uint32_t {
    if (rates == nullptr) return kInvalidArgument;
    *rates = {UtilizationOf(*view, index), 0};
    return kSuccess;
  };
  return Answer(view, "nvmlDeviceGetUtilizationRates", ask, device, rates);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetCudaComputeCapability, Device device, int* major, int* minor) noexcept try {
  const auto ask = [&](const ViewGpu& gpu, size_t) -> uint32_t {
    if (major == nullptr || minor == nullptr) return kInvalidArgument;
    *major = static_cast<int>(gpu.capability / 10);
    *minor = static_cast<int>(gpu.capability % 10);
    return kSuccess;
  };
  return Answer(LastView(), "nvmlDeviceGetCudaComputeCapability", ask, device, major, minor);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetPciInfo_v2, Device device, PciV2* pci) noexcept try {
  const auto ask = [&](const ViewGpu& gpu, size_t) -> uint32_t {
    if (pci == nullptr) return kInvalidArgument;
    if (g_has_real) return PassOn("nvmlDeviceGetPciInfo_v2", device, pci);
    *pci = {};
    pci->domain = gpu.pci_domain;
    pci->bus = gpu.pci_bus;
    pci->device = gpu.pci_device;
    std::snprintf(pci->bus_id, sizeof(pci->bus_id), "%s", BusIdOf(gpu, 4).c_str());
    return kSuccess;
  };
  return Answer(LastView(), "nvmlDeviceGetPciInfo_v2", ask, device, pci);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlDeviceGetPciInfo_v3, Device device, PciV3* pci) noexcept try {
  const auto ask = [&](const ViewGpu& gpu, size_t) -> uint32_t {
    if (pci == nullptr) return kInvalidArgument;
    if (g_has_real) return PassOn("nvmlDeviceGetPciInfo_v3", device, pci);
    *pci = {};
    pci->domain = gpu.pci_domain;
    pci->bus = gpu.pci_bus;
    pci->device = gpu.pci_device;
    std::snprintf(pci->legacy_bus_id, sizeof(pci->legacy_bus_id), "%s", BusIdOf(gpu, 4).c_str());
    std::snprintf(pci->bus_id, sizeof(pci->bus_id), "%s", BusIdOf(gpu, 8).c_str());
    return kSuccess;
  };
  return Answer(LastView(), "nvmlDeviceGetPciInfo_v3", ask, device, pci);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlSystemGetCudaDriverVersion, int* version) noexcept try {
  if (g_has_real) return PassOn("nvmlSystemGetCudaDriverVersion", version);
  const View view = LastView();
  if (version == nullptr || view == nullptr) return kInvalidArgument;
  *version = static_cast<int>(view->driver_version);
  return kSuccess;
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlSystemGetCudaDriverVersion_v2, int* version) noexcept try {
  if (g_has_real) return PassOn("nvmlSystemGetCudaDriverVersion_v2", version);
  const View view = LastView();
  if (version == nullptr || view == nullptr) return kInvalidArgument;
  *version = static_cast<int>(view->driver_version);
  return kSuccess;
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlSystemGetDriverVersion, char* version, uint32_t length) noexcept try {
  if (g_has_real) return PassOn("nvmlSystemGetDriverVersion", version, length);
  return PutText("tally", version, length);
} catch (...) {
  return kUnknown;
}

NVML_FUNCTION(nvmlSystemGetNVMLVersion, char* version, uint32_t length) noexcept try {
  if (g_has_real) return PassOn("nvmlSystemGetNVMLVersion", version, length);
  return PutText("tally", version, length);
} catch (...) {
  return kUnknown;
}

// The only one that returns a text.
extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(uint32_t result) noexcept try {
  const auto real = RealFunctionAs<const char*(uint32_t)>("nvmlErrorString");
  return real != nullptr ? real(result) : TextOf(result);
} catch (...) {
  return TextOf(result);
}
