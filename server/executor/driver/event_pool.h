// Events of our own for waiting: on a stream's work so far, whatever happens to the stream afterwards.
//
// A lane that waits has given its turn up, so another lane may destroy the stream it waits for. It therefore records an
// event of this pool while it still has the turn and waits for that. Thread-safe. One pool per device.
#pragma once

#include <cuda.h>

#include <mutex>
#include <vector>

#include "server/executor/driver/driver_table.h"

namespace tally::server {

class EventPool {
 public:
  explicit EventPool(const DriverTable& driver) : driver_(driver) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // An event without timing in the current context.
  CUresult Acquire(CUevent* event);
  void Release(CUevent event);
  // Destroys all that are not in use.
  void Clear();

 private:
  const DriverTable& driver_;
  std::mutex mutex_;
  std::vector<CUevent> free_;
};

}  // namespace tally::server
