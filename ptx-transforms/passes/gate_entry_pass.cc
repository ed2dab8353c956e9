#include "ptx-transforms/passes/gate_entry_pass.h"

#include <fmt/format.h>

#include "proto/device/gate_abi.h"
#include "ptx-transforms/analysis/control_flow.h"
#include "ptx-transforms/analysis/linear_body.h"
#include "ptx-transforms/analysis/spin_loops.h"
#include "ptx-transforms/passes/edit.h"
#include "ptx-transforms/passes/grid_rules.h"

namespace tally::ptx_transforms {
namespace {

constexpr FeatureRule kRules[] = {
    {Feature::kDeviceLaunch, "device-launch", "launches kernels from the device"},
    {Feature::kGridId, "grid-id", "reads the identity of its launch"},
    {Feature::kUnresolvedName, "unresolved-name", "uses a register or label that is not declared"},
};

bool Spins(const Function& function) {
  const LinearBody body(function);
  const ControlFlow flow(body);
  return FindSpinLoop(flow).has_value();
}

class GateEntryPass : public Pass {
 public:
  std::optional<Refusal> Run(Variant& variant) override;

 private:
  static std::string Declarations(const Variant& variant);
  static std::string Number(const Variant& variant);
  static std::string Gate(const Variant& variant);
};

std::string GateEntryPass::Declarations(const Variant& variant) {
  const auto reg = [&](std::string_view name) { return variant.Register(name); };
  return fmt::format(".reg .b64 {}, {}, {}, {};\n", reg("record"), reg("look"), reg("kept"), reg("raised")) +
         fmt::format(".reg .b32 {}, {}, {}, {}, {}, {}, {};\n", reg("members"), reg("flags"), reg("number"),
                     reg("chunk"), reg("extent"), reg("place"), reg("reach")) +
         fmt::format(".reg .b32 {}, {}, {}, {};\n", reg("watermark"), reg("stopped"), reg("start"), reg("epoch")) +
         fmt::format(".reg .pred {}, {}, {}, {};\n", reg("is_first"), reg("is_simple"), reg("runs"), reg("leaves"));
}

// Of the block, or its cluster, in the queue.
std::string GateEntryPass::Number(const Variant& variant) {
  const auto reg = [&](std::string_view name) { return variant.Register(name); };
  const auto linear = [&](std::string_view index, std::string_view size) {
    return fmt::format(
        "mov.u32 {0}, %{4}.z;\nmov.u32 {1}, %{5}.y;\nmov.u32 {2}, %{4}.y;\nmad.lo.u32 {0}, {0}, {1}, {2};\n"
        "mov.u32 {1}, %{5}.x;\nmov.u32 {2}, %{4}.x;\nmad.lo.u32 {3}, {0}, {1}, {2};\n",
        reg("place"), reg("extent"), reg("reach"), reg("number"), index, size);
  };
  std::string text = fmt::format("mov.u32 {}, %ctaid.x;\n", reg("number"));
  text += fmt::format("and.b32 {0}, {1}, {2};\nsetp.eq.u32 {3}, {0}, 0;\n@{3} bra {4};\n", reg("place"), reg("flags"),
                      device::kGateManyAxes | (variant.gates_clusters ? device::kGateClusters : 0), reg("is_simple"),
                      variant.Label("numbered"));
  if (variant.gates_clusters) {
    text += fmt::format("and.b32 {0}, {1}, {2};\nsetp.eq.u32 {3}, {0}, 0;\n@{3} bra {4};\n", reg("place"), reg("flags"),
                        device::kGateClusters, reg("is_simple"), variant.Label("blocks"));
    text += linear("clusterid", "nclusterid");
    text += fmt::format("bra {};\n{}:\n", variant.Label("numbered"), variant.Label("blocks"));
  }
  text += linear("ctaid", "nctaid");
  text += fmt::format("{}:\n", variant.Label("numbered"));
  text += fmt::format("ld.param.u32 {1}, [{2}+{3}];\nadd.u32 {0}, {0}, {1};\n", reg("number"), reg("place"),
                      variant.Symbol("gate"), offsetof(device::GateParameters, base));
  return text;
}

std::string GateEntryPass::Gate(const Variant& variant) {
  const auto reg = [&](std::string_view name) { return variant.Register(name); };
  const auto label = [&](std::string_view name) { return variant.Label(name); };
  const std::string parameter = variant.Symbol("gate");
  std::string text = fmt::format("ld.param.u64 {0}, [{1}];\nsetp.eq.u64 {2}, {0}, 0;\n@{2} bra {3};\n", reg("record"),
                                 parameter, reg("is_simple"), label("body"));
  text += fmt::format("activemask.b32 {};\n", reg("members"));
  text += fmt::format("cvt.u32.u64 {0}, {1};\nand.b64 {1}, {1}, -{2};\ncvta.to.global.u64 {1}, {1};\n", reg("flags"),
                      reg("record"), device::kGateRecordAlignment);
  // Two halves of 8 bytes, each of which is read at once. May be old: a lower watermark is still right.
  text += fmt::format("ld.global.v2.u64 {{{}, {}}}, [{}];\n", reg("look"), reg("kept"), reg("record"));
  text += Number(variant);
  text += fmt::format("ld.param.u32 {}, [{}+{}];\n", reg("chunk"), parameter, offsetof(device::GateParameters, chunk));
  text += fmt::format("mov.b64 {{{}, {}}}, {};\nmov.b64 {{{}, {}}}, {};\n", reg("watermark"), reg("stopped"),
                      reg("look"), reg("start"), reg("epoch"), reg("kept"));
  text += fmt::format("add.u32 {0}, {1}, {2};\nmov.b64 {3}, {{{0}, {4}}};\n", reg("reach"), reg("number"), reg("chunk"),
                      reg("raised"), reg("epoch"));
  text += fmt::format("mov.u32 {0}, %laneid;\nsetp.eq.u32 {1}, {0}, 0;\n", reg("place"), reg("is_first"));
  text += fmt::format("setp.lt.u32 {0}, {1}, {2};\n@{0} bra {3};\n", reg("leaves"), reg("number"), reg("start"),
                      label("leave"));
  // What one lane has seen for certain is certain for its warp, which must stay together.
  text += fmt::format("setp.lt.u32 {0}, {1}, {2};\nvote.sync.any.pred {0}, {0}, {3};\n@{0} bra {4};\n", reg("runs"),
                      reg("number"), reg("watermark"), reg("members"), label("ahead"));
  text += fmt::format("setp.ne.u32 {0}, {1}, {2};\nvote.sync.any.pred {0}, {0}, {3};\n@{0} bra {4};\n", reg("leaves"),
                      reg("stopped"), reg("epoch"), reg("members"), label("leave"));
  // Nothing is certain: the atomic decides.
  text += fmt::format("@{} atom.global.max.u64 {}, [{}], {};\n", reg("is_first"), reg("look"), reg("record"),
                      reg("raised"));
  text += fmt::format("mov.b64 {{{}, {}}}, {};\n", reg("watermark"), reg("stopped"), reg("look"));
  for (const std::string_view half : {"watermark", "stopped"})
    text += fmt::format("shfl.sync.idx.b32 {0}, {0}, 0, 31, {1};\n", reg(half), reg("members"));
  text += fmt::format("setp.eq.u32 {0}, {1}, {2};\n@{0} bra {3};\n", reg("runs"), reg("stopped"), reg("epoch"),
                      label("body"));
  text += fmt::format("setp.lt.u32 {0}, {1}, {2};\n@{0} bra {3};\n", reg("runs"), reg("number"), reg("watermark"),
                      label("body"));
  text += fmt::format("{}:\n", label("leave"));
  if (variant.gates_clusters) text += "griddepcontrol.wait;\n";
  text += "ret;\n";
  // Close to the watermark it is raised already, so that nobody behind has to wait for an answer.
  text += fmt::format("{0}:\nsub.u32 {1}, {2}, {3};\nshr.u32 {4}, {5}, 1;\nsetp.le.and.u32 {6}, {1}, {4}, {7};\n",
                      label("ahead"), reg("place"), reg("watermark"), reg("number"), reg("extent"), reg("chunk"),
                      reg("leaves"), reg("is_first"));
  text += fmt::format("@{} red.global.max.u64 [{}], {};\n", reg("leaves"), reg("record"), reg("raised"));
  return text + fmt::format("{}:\n", label("body"));
}

std::optional<Refusal> GateEntryPass::Run(Variant& variant) {
  if (variant.has_slice_parameters || variant.has_persistent_parameters)
    return Refusal{"already-transformed", "slice_grid, persistent_blocks and gate_entry exclude one another"};
  if (auto refusal = CheckFeatures(variant.features, kRules)) return refusal;
  if (variant.module.address_size != 64) return Refusal{"address-size", "addresses are not 64 bits wide"};
  if (!IsInVersion(variant.module, 6, 2) || !IsForTarget(variant.module, 70))
    return Refusal{"ptx-version", "its text is older than PTX 6.2 or sm_70, which have no activemask"};
  if (auto refusal = AddHiddenParameter(variant, "gate", sizeof(device::GateParameters), 16)) return refusal;
  variant.gates_clusters = IsForTarget(variant.module, 90) && IsInVersion(variant.module, 7, 8);
  variant.waits_for_blocks = Spins(variant.original);
  for (const Function* function : variant.reach.functions) variant.waits_for_blocks |= Spins(*function);
  InsertPrologue(variant.kernel, ParseSnippet(variant.module, Declarations(variant) + Gate(variant)));
  variant.has_gate = true;
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Pass> MakeGateEntryPass() { return std::make_unique<GateEntryPass>(); }

}  // namespace tally::ptx_transforms
