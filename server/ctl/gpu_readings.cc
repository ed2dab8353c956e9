#include "server/ctl/gpu_readings.h"

#include <dlfcn.h>

namespace tally::cli {
namespace {

constexpr int kGpuTemperature = 0;
constexpr size_t kTextSize = 96;  // NVML's longest name or UUID

template <typename Function>
bool Find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(::dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

struct GpuReadings::Functions {
  // Of nvml.h, whose ABI is fixed. Every function returns 0 if it could.
  using NvmlDevice = void*;
  struct NvmlUtilization {
    unsigned gpu;
    unsigned memory;
  };
  struct NvmlMemory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
  };

  int (*init)();
  int (*shutdown)();
  int (*count)(unsigned* count);
  int (*by_index)(unsigned index, NvmlDevice* device);
  int (*name)(NvmlDevice device, char* name, unsigned length);
  int (*uuid)(NvmlDevice device, char* uuid, unsigned length);
  int (*utilization)(NvmlDevice device, NvmlUtilization* utilization);
  int (*memory)(NvmlDevice device, NvmlMemory* memory);
  int (*temperature)(NvmlDevice device, int sensor, unsigned* celsius);
  int (*power)(NvmlDevice device, unsigned* milliwatts);

  bool FindAll(void* library) {
    return Find(library, "nvmlInit_v2", &init) && Find(library, "nvmlShutdown", &shutdown) &&
           Find(library, "nvmlDeviceGetCount_v2", &count) &&
           Find(library, "nvmlDeviceGetHandleByIndex_v2", &by_index) && Find(library, "nvmlDeviceGetName", &name) &&
           Find(library, "nvmlDeviceGetUUID", &uuid) && Find(library, "nvmlDeviceGetUtilizationRates", &utilization) &&
           Find(library, "nvmlDeviceGetMemoryInfo", &memory) &&
           Find(library, "nvmlDeviceGetTemperature", &temperature) && Find(library, "nvmlDeviceGetPowerUsage", &power);
  }
};

GpuReadings::GpuReadings(const char* library) : library_(::dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) return;
  auto* functions = new Functions{};
  if (functions->FindAll(library_) && functions->init() == 0) {
    functions_ = functions;
  } else {
    delete functions;
  }
}

GpuReadings::~GpuReadings() {
  if (functions_ != nullptr) functions_->shutdown();
  delete functions_;
  if (library_ != nullptr) ::dlclose(library_);
}

std::vector<GpuReading> GpuReadings::Read() const {
  std::vector<GpuReading> readings;
  unsigned count = 0;
  if (functions_ == nullptr || functions_->count(&count) != 0) return readings;
  for (unsigned index = 0; index < count; ++index) {
    Functions::NvmlDevice device = nullptr;
    if (functions_->by_index(index, &device) != 0) continue;
    GpuReading reading;
    reading.index = index;
    char text[kTextSize] = "";
    if (functions_->name(device, text, sizeof(text)) == 0) reading.name = text;
    if (functions_->uuid(device, text, sizeof(text)) == 0) reading.uuid = text;
    Functions::NvmlUtilization utilization{};
    if (functions_->utilization(device, &utilization) == 0) reading.utilization_percent = utilization.gpu;
    Functions::NvmlMemory memory{};
    if (functions_->memory(device, &memory) == 0) {
      reading.used_bytes = memory.used;
      reading.total_bytes = memory.total;
    }
    unsigned number = 0;
    if (functions_->temperature(device, kGpuTemperature, &number) == 0) reading.celsius = number;
    if (functions_->power(device, &number) == 0) reading.watts = number / 1000;
    readings.push_back(std::move(reading));
  }
  return readings;
}

}  // namespace tally::cli
