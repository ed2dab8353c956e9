// A library with NVML's functions: one GPU for each line of the file that TALLY_TEST_GPUS names, "UUID" or "UUID lost".
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

std::vector<std::string> Lines() {
  std::ifstream file(std::getenv("TALLY_TEST_GPUS"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

constexpr int kGpuIsLost = 15;
constexpr int kNotSupported = 3;

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Lines().size());
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<uintptr_t>(index));
  return Lines().at(index).ends_with(" lost") ? kGpuIsLost : 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  std::snprintf(uuid, length, "%s", Lines().at(reinterpret_cast<uintptr_t>(device)).c_str());
  return 0;
}
int nvmlDeviceGetName(void*, char*, unsigned) { return kNotSupported; }
int nvmlDeviceGetUtilizationRates(void*, unsigned*) { return kNotSupported; }
int nvmlDeviceGetMemoryInfo(void*, unsigned long long*) { return kNotSupported; }
int nvmlDeviceGetTemperature(void*, int, unsigned*) { return kNotSupported; }
int nvmlDeviceGetPowerUsage(void*, unsigned*) { return kNotSupported; }
}
