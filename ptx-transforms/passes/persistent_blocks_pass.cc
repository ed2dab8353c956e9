#include "ptx-transforms/passes/persistent_blocks_pass.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "proto/device/variant_abi.h"
#include "ptx-transforms/passes/block_index.h"
#include "ptx-transforms/passes/edit.h"
#include "ptx-transforms/passes/grid_rules.h"
#include "ptx-transforms/passes/own_callees.h"

namespace tally::ptx_transforms {
namespace {

constexpr FeatureRule kRules[] = {
    {Feature::kAlloca, "stack-allocation", "allocates stack that is only given back when the thread ends"},
    {Feature::kMbarrier, "mbarrier", "uses an mbarrier, which may not be initialised a second time"},
    {Feature::kSetMaxRegisters, "setmaxnreg", "changes the number of its registers on the way"},
    {Feature::kTensorCore5, "tcgen05", "allocates tensor memory"},
    {Feature::kTotalSharedSize, "total-shared-size", "reads the size of its shared memory, to which the pass adds"},
};

class PersistentBlocksPass : public Pass {
 public:
  std::optional<Refusal> Run(Variant& variant) override;

 private:
  static void HideExtraShared(Variant& variant, Function& function);
  static std::string DeclareShared(Variant& variant);
  static std::string Start(Variant& variant);
  static std::string Round(const Variant& variant, BlockIndexMask used);
};

// The kernel must not see that its dynamic shared memory has grown.
void PersistentBlocksPass::HideExtraShared(Variant& variant, Function& function) {
  const std::string size = variant.Register("dynamic_size");
  bool is_read = false;
  EditStatements(function.body, [&](Statement& statement, std::vector<Statement>& out) {
    if (auto* instruction = std::get_if<Instruction>(&statement.node)) {
      const auto replace = [&](const Operand& operand) -> std::optional<Operand> {
        if (operand.kind != OperandKind::kSpecialRegister || operand.name != "%dynamic_smem_size") return std::nullopt;
        return Operand{.kind = OperandKind::kRegister, .name = variant.module.arena().Keep(size)};
      };
      const bool is_edited = EditOperands(variant.module.arena(), instruction->operands, replace);
      statement.edited |= is_edited;
      is_read |= is_edited;
    }
    out.push_back(std::move(statement));
  });
  if (!is_read) return;
  InsertPrologue(function, ParseSnippet(variant.module, fmt::format(".reg .b32 {0};\nmov.u32 {0}, %dynamic_smem_size;\n"
                                                                    "sub.u32 {0}, {0}, {1};\n",
                                                                    size, device::kPersistentSharedBytes)));
}

// The start of dynamic shared memory, under a name of our own. Aligned as the strictest of the module's, so that it is
// where theirs is, and no stricter: padding in front of it would be taken from its end.
std::string PersistentBlocksPass::DeclareShared(Variant& variant) {
  uint32_t align = sizeof(uint32_t);
  for (const Item& item : variant.module.items()) {
    const auto* declaration = std::get_if<VariableDeclaration>(&item.node);
    if (declaration == nullptr) continue;
    for (const Variable& variable : declaration->variables)
      if (variable.space == StateSpace::kShared && variable.linkage == Linkage::kExtern)
        align = std::max(align, variable.Alignment());
  }
  const std::string name = variant.Symbol("dynamic_shared");
  variant.declarations.push_back(fmt::format(".extern .shared .align {} .b8 {}[];", align, name));
  return name;
}

std::string PersistentBlocksPass::Start(Variant& variant) {
  const std::string parameter = variant.Symbol("persistent");
  const auto reg = [&](std::string_view name) { return variant.Register(name); };
  std::string text =
      fmt::format(".reg .b64 {};\n.reg .b32 {}, {}, {}, {}, {}, {}, {}, {};\n.reg .pred {}, {}, {};\n", reg("control"),
                  reg("grid_x"), reg("grid_y"), reg("grid_z"), reg("num_blocks"), reg("index"), reg("slot"),
                  reg("temporary"), reg("completed"), reg("is_follower"), reg("is_flat"), reg("is_done"));
  text += fmt::format("ld.param.u64 {}, [{}+{}];\n", reg("control"), parameter,
                      offsetof(device::PersistentParameters, control));
  text += fmt::format("cvta.to.global.u64 {0}, {0};\n", reg("control"));
  text += fmt::format("mov.u32 {}, 0;\n", reg("completed"));
  for (const char component : {'x', 'y', 'z'})
    text += fmt::format("ld.param.u32 {}, [{}+{}];\n", reg(fmt::format("grid_{}", component)), parameter,
                        offsetof(device::PersistentParameters, grid) + static_cast<size_t>(component - 'x') * 4);
  text += fmt::format("mul.lo.u32 {0}, {1}, {2};\nsetp.eq.u32 {3}, {0}, 1;\nmul.lo.u32 {0}, {0}, {4};\n",
                      reg("num_blocks"), reg("grid_y"), reg("grid_z"), reg("is_flat"), reg("grid_x"));
  text += fmt::format(
      "mov.u32 {0}, %tid.x;\nmov.u32 {1}, %tid.y;\nor.b32 {0}, {0}, {1};\nmov.u32 {1}, %tid.z;\n"
      "or.b32 {0}, {0}, {1};\nsetp.ne.u32 {2}, {0}, 0;\n",
      reg("index"), reg("temporary"), reg("is_follower"));
  // The last word that is aligned and ends before the extra bytes do.
  text += fmt::format(
      "mov.u32 {0}, {1};\nmov.u32 {2}, %dynamic_smem_size;\nadd.u32 {0}, {0}, {2};\n"
      "sub.u32 {0}, {0}, {3};\nand.b32 {0}, {0}, -4;\n",
      reg("slot"), DeclareShared(variant), reg("temporary"), device::kPersistentSharedBytes / 2);
  return text;
}

std::string PersistentBlocksPass::Round(const Variant& variant, BlockIndexMask used) {
  const auto reg = [&](std::string_view name) { return variant.Register(name); };
  const auto label = [&](std::string_view name) { return variant.Label(name); };
  std::string text;
  text += fmt::format("{}:\n@{} bra {};\n", label("next"), reg("is_follower"), label("taken"));
  text += fmt::format("{}:\natom.global.add.u32 {}, [{}], 1;\n", label("take"), reg("index"), reg("control"));
  text += fmt::format("{}:\nst.shared.u32 [{}], {};\n", label("publish"), reg("slot"), reg("index"));
  // All lanes of a warp start the body together, as those of a block that has just begun.
  text += fmt::format("{}:\nbarrier.sync {};\nbar.warp.sync -1;\nld.shared.u32 {}, [{}];\n", label("taken"),
                      variant.barrier_id, reg("index"), reg("slot"));
  text += fmt::format("setp.ge.u32 {0}, {1}, {2};\n@!{0} bra {3};\n", reg("is_done"), reg("index"), reg("num_blocks"),
                      label("work"));
  // The end of all blocks that this persistent block took. All its threads have met behind the last one: what they
  // wrote is made visible before it is counted, as the end of a kernel does.
  text += fmt::format("@{0} ret;\nmembar.sys;\natom.global.add.u32 {1}, [{2}+{3}], {4};\nret;\n", reg("is_follower"),
                      reg("index"), reg("control"), offsetof(device::PersistentControl, completed_blocks),
                      reg("completed"));
  text += fmt::format("{0}:\nadd.u32 {1}, {1}, 1;\n", label("work"), reg("completed"));
  for (const char component : {'x', 'y', 'z'})
    if (used.Has(true, component))
      text += fmt::format("mov.u32 {}, {};\n", BlockIndexRegister(variant, true, component),
                          reg(fmt::format("grid_{}", component)));
  if (!used.reads_index()) return text;
  const auto index = [&](char component) { return BlockIndexRegister(variant, false, component); };
  if (used.Has(false, 'x')) text += fmt::format("mov.u32 {}, {};\n", index('x'), reg("index"));
  if (used.Has(false, 'y')) text += fmt::format("mov.u32 {}, 0;\n", index('y'));
  if (used.Has(false, 'z')) text += fmt::format("mov.u32 {}, 0;\n", index('z'));
  text += fmt::format("@{} bra {};\n", reg("is_flat"), label("body"));
  // In a grid of one dimension there is nothing to divide; in all others every part is brought into its range.
  if (used.Has(false, 'x')) text += fmt::format("rem.u32 {}, {}, {};\n", index('x'), reg("index"), reg("grid_x"));
  if (used.Has(false, 'y') || used.Has(false, 'z'))
    text += fmt::format("div.u32 {}, {}, {};\n", reg("temporary"), reg("index"), reg("grid_x"));
  if (used.Has(false, 'y')) text += fmt::format("rem.u32 {}, {}, {};\n", index('y'), reg("temporary"), reg("grid_y"));
  if (used.Has(false, 'z')) text += fmt::format("div.u32 {}, {}, {};\n", index('z'), reg("temporary"), reg("grid_y"));
  return text + fmt::format("{}:\n", label("body"));
}

std::optional<Refusal> PersistentBlocksPass::Run(Variant& variant) {
  CHECK(variant.has_unified_end);
  const Features& features = variant.features;
  if (auto refusal = CheckGridRules(variant, features)) return refusal;
  if (auto refusal = CheckFeatures(features, kRules)) return refusal;
  BlockIndexMask used;
  if (auto refusal = ReplaceBlockIndex(variant, used)) return refusal;
  if (auto refusal = AddHiddenParameter(variant, "persistent", sizeof(device::PersistentParameters),
                                        alignof(device::PersistentParameters)))
    return refusal;
  if (features.Has(Feature::kDynamicSharedSize)) {
    OwnCallees(variant);
    for (Function& function : variant.functions) HideExtraShared(variant, function);
    HideExtraShared(variant, variant.kernel);
  }

  // unify_barriers left one ret, the last statement.
  Statement& last = variant.kernel.body.back();
  CHECK(std::holds_alternative<Instruction>(last.node) && std::get<Instruction>(last.node).opcode == "ret");
  variant.kernel.body.pop_back();
  Append(variant.kernel.body, ParseSnippet(variant.module, fmt::format("bra {};", variant.Label("next"))));
  InsertPrologue(variant.kernel, ParseSnippet(variant.module, Start(variant) + Round(variant, used)));
  variant.extra_shared_bytes = device::kPersistentSharedBytes;
  variant.has_persistent_parameters = true;
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Pass> MakePersistentBlocksPass() { return std::make_unique<PersistentBlocksPass>(); }

}  // namespace tally::ptx_transforms
