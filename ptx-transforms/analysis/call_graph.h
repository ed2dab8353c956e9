// What a function may call, directly and through others.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ptx-transforms/syntax/module.h"

namespace tally::ptx_transforms {

// Everything that may run when a kernel does.
struct Reach {
  // Definitions, the kernel itself not included; callees before callers unless is_recursive.
  std::vector<const Function*> functions;
  // Called, but defined neither in the module nor by the driver.
  std::vector<std::string_view> unknown;
  // Called and provided by the driver: vprintf, malloc, free, __assertfail.
  std::vector<std::string_view> system;
  bool has_indirect_calls = false;
  bool is_recursive = false;
};

// Looks through aliases. O(instructions reached).
Reach FindReach(const Module& module, const Function& kernel);

// The name that a call names; empty for an indirect call.
std::string_view CalleeOf(const Instruction& call);

}  // namespace tally::ptx_transforms
