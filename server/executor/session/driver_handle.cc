#include "server/executor/session/driver_handle.h"

#include <atomic>
#include <cstring>

namespace tally::server {
namespace {

// Each is a descriptor of this process, of which it needs others: for programs' sockets and memory.
constexpr int kMostDescriptors = 1024;
std::atomic<int> num_descriptors{0};

}  // namespace

SharedDriverHandle HandleOfMemory(const DriverTable& driver, CUdeviceptr address) {
  CUipcMemHandle handle{};
  if (driver.cuIpcGetMemHandle == nullptr || driver.cuIpcGetMemHandle(&handle, address) != CUDA_SUCCESS) return nullptr;
  auto made = std::make_shared<DriverHandle>();
  std::memcpy(made->bytes.data(), &handle, sizeof(handle));
  return made;
}

SharedDriverHandle HandleOfEvent(const DriverTable& driver, CUevent event) {
  CUipcEventHandle handle{};
  if (driver.cuIpcGetEventHandle == nullptr || driver.cuIpcGetEventHandle(&handle, event) != CUDA_SUCCESS)
    return nullptr;
  auto made = std::make_shared<DriverHandle>();
  std::memcpy(made->bytes.data(), &handle, sizeof(handle));
  return made;
}

SharedDriverHandle HandleOfPhysical(const DriverTable& driver, CUmemGenericAllocationHandle memory) {
  if (driver.cuMemExportToShareableHandle == nullptr) return nullptr;
  int descriptor = -1;
  if (num_descriptors.fetch_add(1) >= kMostDescriptors ||
      driver.cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
          CUDA_SUCCESS) {
    --num_descriptors;
    return nullptr;
  }
  auto made = std::make_unique<DriverHandle>();
  made->descriptor = UniqueFd(descriptor);
  return {made.release(), [](const DriverHandle* handle) {
            delete handle;
            --num_descriptors;
          }};
}

}  // namespace tally::server
