// The software devices of this process: what they say about themselves, their memory budget and their machine.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/status.h"
#include "sim-driver/engine/machine.h"

namespace tally::sim_driver {

class Context;
class MemoryPool;

constexpr int kDriverVersion = 13000;

class Device {
 public:
  Device(int ordinal, uint64_t total_bytes);

  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }
  CUuuid uuid() const;
  std::string PciBusId() const;

  // Empty for an attribute that does not exist.
  std::optional<int> Attribute(int attribute) const;

  // Memory budget. Take() is false when fewer than `num_bytes` are left.
  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  bool Take(uint64_t num_bytes);
  void Return(uint64_t num_bytes);

  // Before the first context: starts the engine, whose threads live as long as the process. kResourceExhausted: none
  // can be started now. kUnimplemented: the engine cannot run on this CPU.
  Status OpenMachine();
  // Null on such a CPU.
  Machine* machine() { return machine_.get(); }

  // Primary context: see context.h. Guarded by primary_mutex.
  std::mutex primary_mutex;
  std::shared_ptr<Context> primary;
  int primary_references = 0;
  unsigned primary_flags = 0;

  // Memory pools: see pool.h. Guarded by pool_mutex.
  std::mutex pool_mutex;
  std::shared_ptr<MemoryPool> default_pool;
  std::shared_ptr<MemoryPool> current_pool;

 private:
  const int ordinal_;
  const uint64_t total_bytes_;
  const std::string name_;
  std::atomic<uint64_t> used_bytes_{0};
  std::mutex machine_mutex_;
  std::unique_ptr<Machine> machine_;  // set once, before there is a context
};

// cuInit: reads TALLY_SIM_DEVICES, _MEMORY_BYTES and _REUSE_ADDRESSES. Anything but a sane number is ignored with a
// line on stderr.
void InitializeDevices();
bool IsInitialized();
int NumDevices();
// Fails with INVALID_DEVICE, or NOT_INITIALIZED before cuInit (and in a forked child, for ever).
Device& DeviceAt(int ordinal);
void RequireInitialized();
// TALLY_SIM_WAITS; 0: not given (driver_waits.h).
uint64_t WaitMode();
// TALLY_SIM_SHUFFLE; 0: not given (shuffle.h).
uint64_t ShuffleSeed();
// Of the next launch, from TALLY_SIM_SCHEDULE (LaunchRequest::schedule_seed); 0: not given.
uint64_t NextScheduleSeed();

}  // namespace tally::sim_driver
