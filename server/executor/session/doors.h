// Where executors of one tallyd ask one another for shared objects (sharing_door.h).
#pragma once

#include <cstdint>
#include <string>

#include "proto/control/sharing_door_abi.h"

namespace tally::server {

struct Doors {
  std::string directory;  // empty: there are none
  std::string owner;      // whose sessions this executor serves; only those of equal ones share

  std::string PathOf(uint32_t pid) const { return directory + "/" + control::kDoorPrefix + std::to_string(pid); }
};

}  // namespace tally::server
