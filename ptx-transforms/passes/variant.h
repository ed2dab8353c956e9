// A kernel on its way through the passes: a copy of the program's kernel that they rewrite, and what they tell one
// another and the caller about it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ptx-transforms/analysis/call_graph.h"
#include "ptx-transforms/syntax/module.h"
#include "ptx-transforms/transform.h"

namespace tally::ptx_transforms {

struct Variant {
  Variant(Module& module_in, const Function& original_in);

  Module& module;            // owns names and memory; its items are only read
  const Function& original;  // as the program wrote it
  Function kernel;           // rewritten in place
  // Rewritten copies of functions that the kernel calls, callees before callers.
  std::vector<Function> functions;
  // New declarations of module scope that the copies need, as text without the semicolon's line end.
  std::vector<std::string> declarations;
  // Starts every name that passes make up; occurs nowhere else in the module.
  std::string prefix;
  // All that may run when the original does.
  Reach reach;

  // ---- what passes found out or promise
  bool has_slice_parameters = false;
  bool has_worker_parameters = false;
  // Set by unify_barriers: all threads of a block leave through one ret at the end of the body, having met there.
  bool has_unified_end = false;
  // Barrier that the passes may use for all threads, when has_unified_end.
  uint32_t barrier_id = 0;
  // Offset of the hidden parameter in the packed parameters.
  uint32_t hidden_parameter_offset = 0;
  // Dynamic shared memory that the launch needs beyond the program's.
  uint32_t extra_shared_bytes = 0;
  // The launch must have warps of threads with the same y and z: block.x a multiple of 32, or block.y = block.z = 1.
  bool needs_warp_rows = false;
  // Module-scope variables whose addresses the host must provide, in the order of the table.
  std::vector<std::string> imports;

  std::string Register(std::string_view name) const { return "%" + prefix + std::string(name); }
  std::string Label(std::string_view name) const { return "$" + prefix + std::string(name); }
  std::string Symbol(std::string_view name) const { return prefix + std::string(name); }
};

}  // namespace tally::ptx_transforms
