#include "ptx-transforms/passes/variant.h"

namespace tally::ptx_transforms {
namespace {

std::string FreshPrefix(std::string_view source) {
  std::string prefix = "tally_";
  for (int i = 1; source.find(prefix) != std::string_view::npos; ++i) prefix = "tally" + std::to_string(i) + "_";
  return prefix;
}

}  // namespace

Variant::Variant(Module& module_in, const Function& original_in)
    : module(module_in),
      original(original_in),
      kernel(original_in),
      prefix(FreshPrefix(module_in.source())),
      reach(FindReach(module_in, original_in)) {}

}  // namespace tally::ptx_transforms
