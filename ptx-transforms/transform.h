// Front desk of the passes: PTX text in, PTX text with variants of its kernels out.
//
//   TransformOptions options;
//   options.pipelines = {{"slice_grid"}, {"persistent_blocks", "yield_check"}};
//   Result<Transformed> result = TransformText(text, options);
//   for (const KernelVariant& variant : result->variants)
//     variant.is_done() ? Use(variant.name) : Explain(variant.refusal.sentence);
//
// Deterministic; no GPU, no threads, no clock. Safe on hostile text: what the passes cannot prove they refuse.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ptx-transforms/syntax/parser.h"

namespace tally::ptx_transforms {

// Why a pass does not touch a kernel. The code is stable (metrics, tests, `tallyctl kernels`); the sentence is for
// people and may change.
struct Refusal {
  std::string code;      // "inter-block-wait"
  std::string sentence;  // "the loop around 120:3 in scan waits for what other blocks write (ld.acquire.gpu.u32)"
};

enum class Placement : uint8_t {
  kAdd,      // variants stand beside the originals, as NAME__tally_slice or NAME__tally_persistent
  kReplace,  // the variant takes the original's name and place; a refused kernel stays as it was. One pipeline only
  kOnly,     // as kAdd, without the originals: what is loaded beside the program's own module
};

struct TransformOptions {
  // Names of passes (Passes()), each list run on its own copy of every kernel. Passes that others need first are added.
  std::vector<std::vector<std::string>> pipelines = {};
  // Passes that must not run, whatever the pipelines name. One that a named pass needs is an error (kInvalidArgument).
  std::vector<std::string> disabled_passes = {};
  // Empty: all. A name that no kernel has is an error (kNotFound).
  std::vector<std::string> kernels = {};
  Placement placement = Placement::kAdd;
  // Check the tree after every pass. What fails is refused with the code "verifier": a bug of ours, never of the text.
  bool verify = true;
  // Called before every pass and after every one that was done, with the name of the pass, of the kernel and its text.
  // Costs printing.
  std::function<void(std::string_view pass, std::string_view kernel, bool is_start, std::string_view text)> on_text =
      {};
  // Called before and after every pass.
  std::function<void(std::string_view pass, std::string_view kernel, bool is_start)> on_pass = {};
  ParseOptions parse = {};
};

// What became of one kernel in one pipeline.
struct KernelVariant {
  std::string kernel;               // in the input
  std::vector<std::string> passes;  // in the order of their running
  std::string name;                 // in the output; empty if refused
  std::string refused_by;           // the pass; empty if done
  Refusal refusal;

  // ---- of one that is done: what its launch must know
  // Of slice_grid: device::SliceParameters; of persistent_blocks: device::PersistentParameters; of gate_entry:
  // device::GateParameters, at this place of the packed parameters, behind the kernel's own. 0 bytes: none was added.
  uint32_t hidden_parameter_offset = 0;
  uint32_t hidden_parameter_bytes = 0;
  // Dynamic shared memory to ask for beyond what the program does.
  uint32_t extra_shared_bytes = 0;
  // May only be launched if block.x is a multiple of 32, or block.y = block.z = 1. Else run the original.
  bool needs_warp_rows = false;
  // Of gate_entry: launches with clusters and programmatic launches may have it. Else run the original.
  bool gates_clusters = false;
  // Of gate_entry: some loop seems to wait for what other blocks write. Harmless where they are blocks of lower
  // numbers; a launch whose blocks wait for all others, as some do that fit on the GPU together, must not be stopped.
  bool waits_for_blocks = false;

  bool is_done() const { return refused_by.empty(); }
};

// A variable of the program's module that variants work on. The host writes its address (cuModuleGetGlobal in the
// program's module) into entry `index` of the table (cuModuleGetGlobal of Transformed::import_table in the variants').
struct ImportedVariable {
  std::string name;
  bool is_constant = false;  // .const there
  bool is_visible = false;   // known outside its module
};

struct Transformed {
  std::string text;
  // Kernels in the order of the module, pipelines in that of the options.
  std::vector<KernelVariant> variants;
  // In the order of the table, which is an array of u64. Empty: there is no table.
  std::vector<ImportedVariable> imports;
  std::string import_table;

  bool is_all_done() const;
};

// Errors: those of ParseModule; kNotFound (a kernel); kInvalidArgument (an unknown pass, one that needs a disabled
// pass, a pipeline of which nothing is left; no or, with kReplace, several pipelines).
Result<Transformed> TransformText(std::string text, const TransformOptions& options);

// One line per pass, in the order in which passes run.
struct PassDescription {
  std::string_view name;
  std::string_view purpose;
};
std::vector<PassDescription> Passes();

// Changes whenever the output of any pass may: part of the key of every cache of variants.
std::string PassesVersion();

}  // namespace tally::ptx_transforms
