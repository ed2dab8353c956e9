#include "ptx-transforms/passes/slice_grid_pass.h"

#include <fmt/format.h>

#include "proto/device/variant_abi.h"
#include "ptx-transforms/passes/block_index.h"
#include "ptx-transforms/passes/edit.h"
#include "ptx-transforms/passes/grid_rules.h"

namespace tally::ptx_transforms {
namespace {

class SliceGridPass : public Pass {
 public:
  std::optional<Refusal> Run(Variant& variant) override;
};

std::optional<Refusal> SliceGridPass::Run(Variant& variant) {
  const Features& features = variant.features;
  if (auto refusal = CheckGridRules(variant, features)) return refusal;
  BlockIndexMask used;
  if (auto refusal = ReplaceBlockIndex(variant, used)) return refusal;
  if (auto refusal =
          AddHiddenParameter(variant, "slice", sizeof(device::SliceParameters), alignof(device::SliceParameters)))
    return refusal;
  std::string text;
  const std::string parameter = variant.Symbol("slice");
  for (const char component : {'x', 'y', 'z'}) {
    const size_t place = static_cast<size_t>(component - 'x') * sizeof(uint32_t);
    if (used.Has(false, component)) {
      const std::string index = BlockIndexRegister(variant, false, component);
      const std::string first = variant.Register(fmt::format("first_{}", component));
      text += fmt::format(".reg .b32 {};\n", first);
      text += fmt::format("ld.param.u32 {}, [{}+{}];\n", first, parameter,
                          offsetof(device::SliceParameters, first_block) + place);
      text += fmt::format("mov.u32 {}, %ctaid.{};\n", index, component);
      text += fmt::format("add.u32 {0}, {0}, {1};\n", index, first);
    }
    if (used.Has(true, component))
      text += fmt::format("ld.param.u32 {}, [{}+{}];\n", BlockIndexRegister(variant, true, component), parameter,
                          offsetof(device::SliceParameters, grid) + place);
  }
  InsertPrologue(variant.kernel, ParseSnippet(variant.module, text));
  variant.has_slice_parameters = true;
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Pass> MakeSliceGridPass() { return std::make_unique<SliceGridPass>(); }

}  // namespace tally::ptx_transforms
