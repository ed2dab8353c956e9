// Objects that several sessions of this executor use: what one program offered to others by a name that cannot be
// guessed (cuIpcGetMemHandle and its kin), who holds it, and when it really ends.
//
// All sessions share one real context per device, so "opening" memory or an event of another program maps nothing: both
// use the same address or the same real event. (Sessions of other executors open it by the driver: driver_handle.h.)
// What has to be right is the end. An object offered here is destroyed when its last holder lets go of it, the owner or
// an opener, in whatever order; once the owner has let go nobody new can open it. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/status.h"
#include "proto/shm/records_memory_abi.h"
#include "proto/shm/records_sharing_abi.h"
#include "server/executor/session/driver_handle.h"
#include "server/executor/session/memory_quota.h"

namespace tally::server {

struct PhysicalMemory;

class SharedObjects {
 public:
  struct Object {
    shm::SharedKind kind = shm::SharedKind::kAllocation;
    uint64_t key = 0;  // address, or the real event
    uint64_t size_bytes = 0;
    int device = 0;
    SharedCharge charge{};
    SharedDriverHandle handle{};  // null: other executors cannot open it
  };
  // What other executors are told of an object (sharing_door.h).
  struct Outline {
    uint64_t size_bytes = 0;
    int device = 0;
    shm::PhysicalProperties properties{};  // kPhysical
    SharedDriverHandle handle;
  };

  SharedObjects();

  // The object's name, the same each time. The owner becomes its first holder. `name` stays empty and the result is
  // false when the system has no randomness to give.
  bool Offer(const Object& object, shm::SharedName* name);
  // One more holder. kNotFound: no such object, or no longer; kFailedPrecondition: the name is another executor's.
  Result<Object> Open(const shm::SharedName& name);
  // A holder lets go, `is_owner` if it offered the object. True: nobody else holds it, the caller destroys it. True at
  // once for what was never offered.
  bool Drop(shm::SharedKind kind, uint64_t key, bool is_owner);

  // Physical memory counts its own holders. `make_handle` is called at most once for it, without a lock.
  bool OfferPhysical(const std::shared_ptr<PhysicalMemory>& memory,
                     const std::function<SharedDriverHandle()>& make_handle, shm::SharedName* name);
  // Also what was imported: kFailedPrecondition is said only of another executor's that is not here yet.
  Result<std::shared_ptr<PhysicalMemory>> OpenPhysical(const shm::SharedName& name);
  // Of another executor, by the driver. What is here by then if another session was quicker.
  std::shared_ptr<PhysicalMemory> AddImported(const shm::SharedName& name, std::shared_ptr<PhysicalMemory> memory);

  // Not of what has been opened here from other executors: their own doors know it.
  Result<Outline> ForOthers(const shm::SharedName& name) const;

 private:
  using Token = std::pair<uint64_t, uint64_t>;
  struct Held {
    Object object;
    Token token;
    uint32_t num_holders = 1;
    bool is_offered = true;  // until the owner lets go
  };

  bool NewName(shm::SharedKind kind, shm::SharedName* name) const;
  Status CheckName(const shm::SharedName& name) const;
  Result<Outline> PhysicalForOthers(const Token& token) const;  // with the lock
  void ForgetGonePhysical();

  uint64_t executor_ = 0;
  std::atomic<size_t> num_held_{0};  // so that a free of what nobody shares takes no lock
  mutable std::mutex mutex_;
  std::map<std::pair<shm::SharedKind, uint64_t>, Held> held_;
  std::map<Token, std::pair<shm::SharedKind, uint64_t>> by_token_;
  struct OfferedPhysical {
    std::weak_ptr<PhysicalMemory> memory;
    shm::SharedName name{};  // its own executor's, of what was imported
  };
  std::map<Token, OfferedPhysical> physical_;
};

}  // namespace tally::server
