// Functions that device code calls and the driver provides: vprintf, malloc, free, __assertfail.
#pragma once

#include <string_view>

#include "sim-driver/engine/instruction.h"

namespace tally::sim_driver {

struct Builtin {
  std::string_view name;
  uint32_t num_arguments = 0;
  // Reads arguments from and writes the result to the frame's parameter area, at Instruction::list as in OpCall.
  OpFunction op = nullptr;
  bool prints = false;
};

// Null if there is none of that name.
const Builtin* FindBuiltin(std::string_view name);

}  // namespace tally::sim_driver
