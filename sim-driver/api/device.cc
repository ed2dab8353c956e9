#include "sim-driver/api/device.h"

#include <fmt/format.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "sim-driver/api/device_attributes.h"
#include "sim-driver/api/error.h"
#include "sim-driver/api/live_objects.h"
#include "sim-driver/api/memory_map.h"

namespace tally::sim_driver {
namespace {

constexpr uint64_t kDefaultMemoryBytes = uint64_t{4} << 30;
constexpr uint64_t kMaxDevices = 16;
constexpr uint64_t kMinMemoryBytes = 1 << 20;
constexpr uint64_t kMaxMemoryBytes = uint64_t{64} << 30;
constexpr uint64_t kMaxWorkers = 1024;

std::atomic<bool> is_initialized{false};
std::atomic<bool> is_forked_child{false};
std::mutex init_mutex;
std::vector<std::unique_ptr<Device>>& Devices() {
  static auto& devices = *new std::vector<std::unique_ptr<Device>>();
  return devices;
}

uint64_t NumberFromEnvironment(const char* name, uint64_t least, uint64_t most, uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || value < least || value > most) {
    fmt::print(stderr, "tally sim: {}='{}' is not a number from {} to {}; using {}\n", name, text, least, most,
               otherwise);
    return otherwise;
  }
  return value;
}

}  // namespace

Device::Device(int ordinal, uint64_t total_bytes)
    : ordinal_(ordinal), total_bytes_(total_bytes), name_("Tally software GPU (sm_90)") {}

CUuuid Device::uuid() const {
  // Fixed, so that a program sees the same device in every run; the last byte tells devices apart.
  CUuuid uuid;
  std::memcpy(uuid.bytes, "tally-sim-gpu-\0", 16);
  uuid.bytes[15] = static_cast<char>(ordinal_);
  return uuid;
}

std::string Device::PciBusId() const { return fmt::format("0000:{:02X}:00.0", ordinal_ + 1); }

std::optional<int> Device::Attribute(int attribute) const {
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) return ordinal_ + 1;
  return DeviceAttribute(attribute);
}

bool Device::Take(uint64_t num_bytes) {
  uint64_t used = used_bytes_.load(std::memory_order_relaxed);
  do {
    if (num_bytes > total_bytes_ - used) return false;
  } while (!used_bytes_.compare_exchange_weak(used, used + num_bytes, std::memory_order_relaxed));
  return true;
}

void Device::Return(uint64_t num_bytes) { used_bytes_.fetch_sub(num_bytes, std::memory_order_relaxed); }

Status Device::OpenMachine() {
  const std::lock_guard lock(machine_mutex_);
  if (machine_ != nullptr) return OkStatus();
  MachineOptions options;
  options.num_workers = static_cast<uint32_t>(NumberFromEnvironment("TALLY_SIM_WORKERS", 1, kMaxWorkers, 0));
  auto machine = Machine::Create(options);
  if (!machine) {
    fmt::print(stderr, "tally sim: {}\n", machine.error().ToString());
    return machine.error();
  }
  machine_ = std::move(*machine);
  return OkStatus();
}

void InitializeDevices() {
  if (is_forked_child.load()) Fail(CUDA_ERROR_NOT_INITIALIZED);
  const std::lock_guard lock(init_mutex);
  if (is_initialized.load()) return;
  const uint64_t num_devices = NumberFromEnvironment("TALLY_SIM_DEVICES", 1, kMaxDevices, 1);
  const uint64_t num_bytes =
      NumberFromEnvironment("TALLY_SIM_MEMORY_BYTES", kMinMemoryBytes, kMaxMemoryBytes, kDefaultMemoryBytes);
  if (NumberFromEnvironment("TALLY_SIM_REUSE_ADDRESSES", 0, 1, 0) != 0) MemoryMap::Get().ReuseAddresses();
  for (uint64_t i = 0; i < num_devices; ++i) {
    Devices().push_back(std::make_unique<Device>(static_cast<int>(i), num_bytes));
  }
  RegisterLive("device-bytes", [] {
    uint64_t used = 0;
    for (const auto& device : Devices()) used += device->used_bytes();
    return used;
  });
  // The threads of the device do not exist in a forked child.
  pthread_atfork(nullptr, nullptr, [] {
    is_forked_child.store(true);
    is_initialized.store(false);
  });
  is_initialized.store(true, std::memory_order_release);
}

uint64_t WaitMode() {
  static const uint64_t mode = NumberFromEnvironment("TALLY_SIM_WAITS", 0, 2, 0);
  return mode;
}

uint64_t ShuffleSeed() { return NumberFromEnvironment("TALLY_SIM_SHUFFLE", 0, ~uint64_t{0}, 0); }

uint64_t NextScheduleSeed() {
  static const uint64_t seed = NumberFromEnvironment("TALLY_SIM_SCHEDULE", 0, ~uint64_t{0}, 0);
  static std::atomic<uint64_t> num_launches{0};
  if (seed == 0) return 0;
  const uint64_t of_launch = seed + (num_launches.fetch_add(1, std::memory_order_relaxed) << 32);
  return of_launch == 0 ? 1 : of_launch;
}

bool IsInitialized() { return is_initialized.load(std::memory_order_acquire); }
void RequireInitialized() { Require(IsInitialized(), CUDA_ERROR_NOT_INITIALIZED); }

int NumDevices() {
  RequireInitialized();
  return static_cast<int>(Devices().size());
}

Device& DeviceAt(int ordinal) {
  Require(ordinal >= 0 && ordinal < NumDevices(), CUDA_ERROR_INVALID_DEVICE);
  return *Devices()[static_cast<size_t>(ordinal)];
}

}  // namespace tally::sim_driver
