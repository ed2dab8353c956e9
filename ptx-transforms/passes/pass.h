// One rewriting of one kernel.
//
// A pass checks first and says why it refuses; what it has already changed then does not matter, because the pipeline
// (pipeline.h) throws the copy away. It never guesses: what it cannot prove, it refuses.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "ptx-transforms/analysis/features.h"
#include "ptx-transforms/passes/variant.h"

namespace tally::ptx_transforms {

class Pass {
 public:
  virtual ~Pass() = default;
  // Null: done. An instance may be used for any number of kernels, one after another.
  virtual std::optional<Refusal> Run(Variant& variant) = 0;
};

// A pass as users name it.
struct PassEntry {
  std::string_view name;     // "slice_grid", as in ptx-opt --pass=
  std::string_view purpose;  // one line
  // Passes that must have run before, in this order; the pipeline adds those that are missing.
  std::span<const std::string_view> after;
  // Appended to the kernel's name; empty if the pass makes no variant by itself.
  std::string_view suffix;
  // Changes when the output of the pass does, so that caches of its results are not used any more.
  int version;
  std::unique_ptr<Pass> (*make)();
};

// A feature that a pass refuses, and the code to say so.
struct FeatureRule {
  Feature feature;
  std::string_view code;
  std::string_view sentence;  // "uses an mbarrier, which lives as long as its block"
};
std::optional<Refusal> CheckFeatures(const Features& features, std::span<const FeatureRule> rules);
// Rules of every pass: what cannot be understood at all.
std::optional<Refusal> CheckUnderstood(const Variant& variant, const Features& features);
// Whether the text is for that architecture (90: sm_90) or a later one.
bool IsForTarget(const Module& module, uint32_t lowest);
// Whether it is of that version of PTX or a later one.
bool IsInVersion(const Module& module, uint32_t major, uint32_t minor);

}  // namespace tally::ptx_transforms
