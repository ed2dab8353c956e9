// What the driver gives out for other processes (CUDA's own IPC), so that another executor opens what a session of this
// one has offered. Made when it is offered, on the thread of who offers it, as natively: a call of the driver that
// waits then makes nobody else wait.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <memory>

#include "base/unique_fd.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {

// Immutable.
struct DriverHandle {
  std::array<uint8_t, sizeof(CUipcMemHandle)> bytes{};  // of memory or an event
  UniqueFd descriptor;                                  // of physical memory
};
static_assert(sizeof(CUipcMemHandle) == sizeof(CUipcEventHandle));
using SharedDriverHandle = std::shared_ptr<const DriverHandle>;

// Null: this driver, or this object, cannot be shared with other processes; or there are too many descriptors already.
SharedDriverHandle HandleOfMemory(const DriverTable& driver, CUdeviceptr address);
SharedDriverHandle HandleOfEvent(const DriverTable& driver, CUevent event);
SharedDriverHandle HandleOfPhysical(const DriverTable& driver, CUmemGenericAllocationHandle memory);

}  // namespace tally::server
