// What NVML says about the GPUs of this machine, if it is there. tallyctl does not link it: it is part of NVIDIA's
// driver, and a machine with the software GPU has none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tally::cli {

struct GpuReading {
  uint32_t index = 0;
  std::string name;
  std::string uuid;
  std::optional<uint32_t> utilization_percent;  // of the time, in which any kernel ran, whoever's
  std::optional<uint64_t> used_bytes, total_bytes;
  std::optional<uint32_t> celsius;
  std::optional<uint32_t> watts;
};

// Owns the opened library. One thread.
class GpuReadings {
 public:
  explicit GpuReadings(const char* library = "libnvidia-ml.so.1");
  ~GpuReadings();
  GpuReadings(const GpuReadings&) = delete;
  GpuReadings& operator=(const GpuReadings&) = delete;

  // Empty without NVML. What one GPU does not say is missing.
  std::vector<GpuReading> Read() const;

 private:
  struct Functions;
  void* library_ = nullptr;
  Functions* functions_ = nullptr;  // null: NVML is not usable
};

}  // namespace tally::cli
