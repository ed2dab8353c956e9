// Initial values of global variables.
#pragma once

#include <functional>
#include <string_view>

#include "base/status.h"
#include "ptx-transforms/ptx_module.h"
#include "sim-driver/engine/program.h"

namespace tally::sim_driver {

// What a name in an initialiser refers to.
struct InitializerTarget {
  bool is_known = false;
  bool is_function = false;
  uint32_t index = 0;
};

// Sets size_bytes, initial_bytes and relocations of `variable` from its declaration.
Status FillVariable(const ptx_transforms::Variable& declaration,
                    const std::function<InitializerTarget(std::string_view)>& find, Variable& variable);

}  // namespace tally::sim_driver
