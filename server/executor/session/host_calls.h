// Host functions of one session on their way to the client and back.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "server/executor/driver/driver_table.h"
#include "server/executor/session/callback_queue.h"
#include "server/executor/session/host_call_words.h"

namespace tally::server {

struct HostCalls {
  HostCalls(const DriverTable& driver, std::shared_ptr<CallbackQueue> calls) : queue(std::move(calls)), words(driver) {}

  const std::shared_ptr<CallbackQueue> queue;   // thread-safe
  HostCallWords words;                          // guarded by the session's sequencer
  std::vector<std::unique_ptr<HostCall>> kept;  // likewise; graphs may call them until the session ends
};

}  // namespace tally::server
