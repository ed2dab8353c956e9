#include "ptx-transforms/passes/variant.h"

#include <utility>

namespace tally::ptx_transforms {

size_t ImportTable::IndexOf(const Variable& variable) {
  const auto [place, is_new] = places_.try_emplace(std::string(variable.name), variables_.size());
  if (is_new)
    variables_.push_back(
        {std::string(variable.name), variable.space == StateSpace::kConst, variable.linkage != Linkage::kInternal});
  return place->second;
}

Variant::Variant(Module& module_in, ImportTable& imports_in, const Function& original_in, std::string final_name_in,
                 std::string prefix_in)
    : module(module_in),
      original(original_in),
      kernel(original_in),
      final_name(std::move(final_name_in)),
      prefix(std::move(prefix_in)),
      reach(FindReach(module_in, original_in)),
      features(module_in, original_in, reach),
      imports(imports_in) {}

std::string FreshPrefix(std::string_view source) {
  std::string prefix = "tally_";
  for (int i = 1; source.find(prefix) != std::string_view::npos; ++i) prefix = "tally" + std::to_string(i) + "_";
  return prefix;
}

bool IsLiteral(const Variable& variable) {
  return variable.space == StateSpace::kGlobal && variable.linkage == Linkage::kInternal && variable.has_initializer &&
         (variable.name.starts_with("$str") || variable.name.starts_with("__unnamed_"));
}

}  // namespace tally::ptx_transforms
