// Where other executors of the same owner ask for what sessions of this one have offered
// (proto/control/sharing_door_abi.h).
//
// It hands out what was made when the object was offered (driver_handle.h) and never calls the driver: whatever waits
// there, the door answers. It holds nothing for who has asked: memory that was opened elsewhere lives on in the driver,
// and counts for who opened it.
#pragma once

#include <thread>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"
#include "server/executor/session/doors.h"
#include "server/executor/session/shared_objects.h"

namespace tally::server {

class SharingDoor {
 public:
  SharingDoor(const SharedObjects& shared, Doors doors) : shared_(shared), doors_(std::move(doors)) {}
  ~SharingDoor() { Close(); }
  SharingDoor(const SharingDoor&) = delete;
  SharingDoor& operator=(const SharingDoor&) = delete;

  // Listens, on a thread of its own. An error: other executors cannot open what sessions of this one offer.
  Status Open();
  // Idempotent.
  void Close();

 private:
  void Serve();
  void Answer(int connection) const;

  const SharedObjects& shared_;
  const Doors doors_;
  UniqueFd listening_;
  UniqueFd end_;  // eventfd
  std::thread thread_;
};

}  // namespace tally::server
