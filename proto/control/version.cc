#include "proto/control/version.h"

#include <fmt/format.h>

#include "proto/driver/generated/wire_ops.h"
#include "proto/shm/handshake_abi.h"

namespace tally::control {

std::string VersionLine(std::string_view program) {
  return fmt::format("{} {} (protocol {}, driver table {:016x})", program, kVersion, shm::kProtocolVersion,
                     kApiTableHash);
}

}  // namespace tally::control
