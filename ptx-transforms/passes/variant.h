// A kernel on its way through the passes: a copy of the program's kernel that they rewrite, and what they tell one
// another and the caller about it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx-transforms/analysis/call_graph.h"
#include "ptx-transforms/analysis/features.h"
#include "ptx-transforms/syntax/module.h"
#include "ptx-transforms/transform.h"

namespace tally::ptx_transforms {

// The variables that the variants of one module import, in the order of their table.
class ImportTable {
 public:
  const std::vector<ImportedVariable>& variables() const { return variables_; }
  // Its index; new ones come to the end.
  size_t IndexOf(const Variable& variable);

 private:
  std::vector<ImportedVariable> variables_;
  std::unordered_map<std::string, size_t> places_;
};

struct Variant {
  // `final_name`: of the kernel in the output. `prefix`: see below. All references must outlive the variant.
  Variant(Module& module_in, ImportTable& imports_in, const Function& original_in, std::string final_name_in,
          std::string prefix_in);

  Module& module;            // owns names and memory; its items are only read
  const Function& original;  // as the program wrote it
  Function kernel;           // rewritten in place
  std::string final_name;    // that the kernel gets
  // Rewritten copies of functions that the kernel calls, callees before callers.
  std::vector<Function> functions;
  // New declarations of module scope that the copies need, as text without the semicolon's line end.
  std::vector<std::string> declarations;
  // Starts every name that passes make up; occurs nowhere else in the module.
  std::string prefix;
  // All that may run when the original does.
  Reach reach;
  // Of all that.
  Features features;

  // ---- what passes found out or promise
  bool has_slice_parameters = false;
  bool has_persistent_parameters = false;
  bool has_gate = false;
  // Of one with a gate: see KernelVariant.
  bool gates_clusters = false;
  bool waits_for_blocks = false;
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
  // Set by import_globals: needs no .global or .const variable of its module but literals.
  bool has_imports = false;
  ImportTable& imports;

  std::string Register(std::string_view name) const { return "%" + prefix + std::string(name); }
  std::string Label(std::string_view name) const { return "$" + prefix + std::string(name); }
  std::string Symbol(std::string_view name) const { return prefix + std::string(name); }
};

// "tally_", or another beginning of names that the source does not contain anywhere.
std::string FreshPrefix(std::string_view source);

// A string literal of nvcc: no program can write or name it, so every module may have its own.
bool IsLiteral(const Variable& variable);

}  // namespace tally::ptx_transforms
