// Commands of a mirror as values: read out of a slot that anybody may write to, and checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "proto/shm/mirror_abi.h"

namespace tally::server {

struct MirrorOrder {
  shm::MirrorCommand command{};
  std::vector<std::byte> bytes;  // of a launch: its parameters; of a function: its name
};

// Copies the slot out, each byte read once, and checks the copy: all that can be said without knowing what the mirror
// has. kInvalidArgument names what is wrong. Of a checked command no sum or product of its numbers wraps.
Result<MirrorOrder> ReadOrder(const shm::MirrorSlot& slot);
Status CheckCommand(const shm::MirrorCommand& command);

// Bytes from the first to the last that a kFetch, kWriteBack or kFill touches. The command has been checked.
inline uint64_t BoxExtent(const shm::MirrorCommand& command) {
  return (command.rows == 1 ? 0 : (command.rows - 1) * command.pitch) + command.row_bytes;
}

}  // namespace tally::server
