// What sessions of this executor have opened that belongs to sessions of other executors of the same owner: asked for
// at their doors (sharing_door.h), opened by the driver, as natively.
//
// Such memory lies at an address that the driver picks, unlike that of sessions of one executor. Sessions that open the
// same memory with the same device current share one opening. Thread-safe.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/unique_fd.h"
#include "proto/control/sharing_door_abi.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/session/doors.h"
#include "server/executor/session/virtual_memory.h"

namespace tally::server {

class ForeignObjects {
 public:
  ForeignObjects(const DriverTable& driver, Doors doors, int num_devices)
      : driver_(driver), doors_(std::move(doors)), num_devices_(num_devices) {}

  // What another executor has answered, checked.
  struct Answer {
    control::DoorReply reply{};
    UniqueFd descriptor;
  };
  // CUDA_ERROR_INVALID_VALUE: no such object, or nobody's of this owner; CUDA_ERROR_NOT_SUPPORTED: the driver cannot
  // share it, or there is no door.
  CUresult Ask(const shm::SharedName& name, Answer* answer) const;

  struct Allocation {
    uint64_t address = 0;
    uint64_t size_bytes = 0;
    int device = 0;  // whose memory it is
  };
  // One more session has it open. The context of `current_device` is current.
  CUresult OpenMemory(const shm::SharedName& name, int current_device, Allocation* opened);
  // A session lets go of it; the last one closes it.
  void CloseMemory(uint64_t address);
  // The caller destroys it.
  CUresult OpenEvent(const shm::SharedName& name, CUevent* event, int* device) const;
  // Of physical memory that Ask has answered.
  CUresult Import(const Answer& answer, std::shared_ptr<PhysicalMemory>* memory) const;

 private:
  using Key = std::tuple<uint64_t, uint64_t, int>;  // token, current device
  struct Opened {
    Allocation allocation;
    uint32_t num_sessions = 0;
  };

  const DriverTable& driver_;
  const Doors doors_;
  const int num_devices_;
  std::mutex mutex_;
  std::map<Key, Opened> opened_;
  std::map<uint64_t, Key> by_address_;
};

}  // namespace tally::server
