#include "ptx-transforms/analysis/features.h"

#include <algorithm>
#include <unordered_set>

#include "ptx-transforms/analysis/barrier_sites.h"
#include "ptx-transforms/analysis/linear_body.h"
#include "ptx-transforms/analysis/visit.h"
#include "ptx-transforms/syntax/printer.h"

namespace tally::ptx_transforms {
namespace {

// All of PTX ISA 9.0. What is not here may do anything, such as hold on to something that lives as long as a block.
bool IsKnownOpcode(std::string_view opcode) {
  static const std::unordered_set<std::string_view> kOpcodes = {
      "abs",          "activemask",    "add",       "addc",       "alloca",
      "and",          "applypriority", "atom",      "bar",        "barrier",
      "bfe",          "bfi",           "bfind",     "bmsk",       "bra",
      "brev",         "brkpt",         "brx",       "call",       "clusterlaunchcontrol",
      "clz",          "cnot",          "copysign",  "cos",        "cp",
      "createpolicy", "cvt",           "cvta",      "discard",    "div",
      "dp2a",         "dp4a",          "elect",     "ex2",        "exit",
      "fence",        "fma",           "fns",       "getctarank", "griddepcontrol",
      "isspacep",     "istypep",       "ld",        "ldmatrix",   "ldu",
      "lg2",          "lop3",          "mad",       "mad24",      "madc",
      "mapa",         "match",         "max",       "mbarrier",   "membar",
      "min",          "mma",           "mov",       "movmatrix",  "mul",
      "mul24",        "multimem",      "nanosleep", "neg",        "not",
      "or",           "pmevent",       "popc",      "prefetch",   "prefetchu",
      "prmt",         "rcp",           "red",       "redux",      "rem",
      "ret",          "rsqrt",         "sad",       "selp",       "set",
      "setmaxnreg",   "setp",          "shf",       "shfl",       "shl",
      "shr",          "sin",           "slct",      "sqrt",       "st",
      "stackrestore", "stacksave",     "stmatrix",  "sub",        "subc",
      "suld",         "suq",           "sured",     "sust",       "szext",
      "tanh",         "tcgen05",       "tensormap", "testp",      "tex",
      "tld4",         "trap",          "txq",       "vabsdiff",   "vabsdiff2",
      "vabsdiff4",    "vadd",          "vadd2",     "vadd4",      "vavrg2",
      "vavrg4",       "vmad",          "vmax",      "vmax2",      "vmax4",
      "vmin",         "vmin2",         "vmin4",     "vote",       "vset",
      "vset2",        "vset4",         "vshl",      "vshr",       "vsub",
      "vsub2",        "vsub4",         "wgmma",     "wmma",       "xor"};
  return kOpcodes.contains(opcode);
}

bool IsClusterRegister(std::string_view name) {
  return name.starts_with("%cluster") || name == "%nclusterid" || name == "%is_explicit_cluster";
}

bool IsDeviceLaunch(std::string_view callee) {
  return callee.starts_with("cudaLaunchDevice") || callee.starts_with("cudaGetParameterBuffer") ||
         callee.starts_with("cudaDevice") || callee.starts_with("cudaStream") || callee.starts_with("cudaEvent") ||
         callee.starts_with("__cudaCDP") || callee.starts_with("cudaCDP");
}

std::string Mnemonic(const Instruction& instruction) {
  std::string text(instruction.opcode);
  for (const std::string_view modifier : instruction.modifiers) (text += '.') += modifier;
  return text;
}

}  // namespace

Features::Features(const Module& module, const Function& kernel, const Reach& reach) {
  AddDirectives(kernel);
  AddFunction(module, kernel);
  for (const Function* function : reach.functions) AddFunction(module, *function);
  if (reach.is_recursive) Add(Feature::kRecursion, {}, "recursion");
  for (const std::string_view name : reach.unknown)
    Add(IsDeviceLaunch(name) ? Feature::kDeviceLaunch : Feature::kUnknownCallee, {}, name);
  // A reference to a texture of the module: bound to the program's own module, which a variant cannot reach.
  std::unordered_set<std::string_view> references;
  std::unordered_set<std::string_view> functions;
  for (const Item& item : module.items()) {
    if (const auto* function = std::get_if<Function>(&item.node)) functions.insert(function->name);
    if (const auto* alias = std::get_if<Alias>(&item.node)) functions.insert(alias->name);
    const auto* declaration = std::get_if<VariableDeclaration>(&item.node);
    if (declaration == nullptr) continue;
    for (const Variable& variable : declaration->variables)
      if (variable.type == ScalarType::kTexref || variable.type == ScalarType::kSamplerref ||
          variable.type == ScalarType::kSurfref || variable.space == StateSpace::kTex)
        references.insert(variable.name);
  }
  const auto find = [&](const Function& function) {
    VisitInstructions(function.body, [&](const Statement& statement, const Instruction& instruction) {
      VisitOperands(instruction.operands, [&](const Operand& operand) {
        if (references.contains(operand.name)) Add(Feature::kTextureReference, statement.span.position, operand.name);
        if (operand.kind == OperandKind::kSymbol && instruction.opcode != "call" && functions.contains(operand.name))
          Add(Feature::kFunctionAddress, statement.span.position, operand.name);
      });
    });
  };
  find(kernel);
  for (const Function* function : reach.functions) find(*function);
}

const FeatureSite* Features::Find(Feature feature) const {
  const auto& site = first_[static_cast<size_t>(feature)];
  return site ? &*site : nullptr;
}

void Features::Add(Feature feature, SourcePosition position, std::string_view what) {
  auto& site = first_[static_cast<size_t>(feature)];
  if (!site) site = FeatureSite{position, std::string(what)};
}

void Features::AddDirectives(const Function& kernel) {
  for (const FunctionDirective& directive : kernel.directives)
    if (directive.name.find("cluster") != std::string_view::npos) Add(Feature::kCluster, {}, directive.name);
  for (const Variable& parameter : kernel.parameters)
    if (parameter.pointer.is_present && parameter.pointer.space == StateSpace::kConst)
      Add(Feature::kConstantSpace, {}, parameter.name);
}

void Features::AddFunction(const Module& module, const Function& function) {
  const LinearBody body(function);
  for (const std::string_view name : body.unresolved()) Add(Feature::kUnresolvedName, {}, name);
  for (const Statement* opaque : body.opaque())
    Add(Feature::kOpaque, opaque->span.position, module.Text(opaque->span.text()).substr(0, 60));
  for (const LinearBody::Entry& entry : body.entries()) AddInstruction(function, *entry.statement, *entry.instruction);
}

void Features::AddInstruction(const Function& function, const Statement& statement, const Instruction& instruction) {
  const std::string_view opcode = instruction.opcode;
  const auto add = [&](Feature feature) { Add(feature, statement.span.position, Mnemonic(instruction)); };
  if (!IsKnownOpcode(opcode)) {
    add(opcode.starts_with('_') ? Feature::kInternalInstruction : Feature::kUnknownInstruction);
  }
  if (opcode == "alloca" || opcode == "stacksave" || opcode == "stackrestore") add(Feature::kAlloca);
  if (opcode == "cp") {
    if (instruction.HasModifier("bulk")) {
      add(Feature::kBulkCopy);
    } else {
      add(Feature::kAsyncCopy);
    }
    if (instruction.HasModifier("mbarrier")) add(Feature::kMbarrier);
  }
  if (opcode == "mbarrier" || instruction.HasModifier("mbarrier::complete_tx::bytes") ||
      instruction.HasModifier("mbarrier::arrive::one"))
    add(Feature::kMbarrier);
  // A copy to shared::cluster that is not multicast and comes from global memory stays in the block that issues it; so
  // do fences and accesses whose scope is the cluster.
  const bool is_copy_into_block =
      opcode == "cp" && !instruction.HasModifier("multicast::cluster") && !instruction.HasModifier("shared::cta");
  if (opcode == "mapa" || opcode == "getctarank" || opcode == "clusterlaunchcontrol" ||
      instruction.HasModifier("multicast::cluster") ||
      (instruction.HasModifier("shared::cluster") && !is_copy_into_block))
    add(Feature::kCluster);
  if (opcode == "griddepcontrol") add(Feature::kDependentLaunch);
  if (opcode == "exit" && !function.is_entry) add(Feature::kExitInFunction);
  if (opcode == "setmaxnreg") add(Feature::kSetMaxRegisters);
  if (opcode == "tcgen05") add(Feature::kTensorCore5);
  if (opcode == "wgmma") add(Feature::kWgmma);
  if (opcode == "isspacep" && instruction.HasModifier("const")) add(Feature::kConstantSpace);
  if (opcode == "call") {
    const std::string_view callee = CalleeOf(instruction);
    if (callee.empty()) add(Feature::kIndirectCall);
  }
  bool is_unknown = false;
  if (const auto site = BarrierSiteOf(instruction, &is_unknown)) {
    if (site->kind == BarrierSite::Kind::kArrive) add(Feature::kBarrierArrive);
    if (site->kind == BarrierSite::Kind::kWarp) add(Feature::kWarpSync);
    if (site->kind == BarrierSite::Kind::kCluster) add(Feature::kCluster);
  } else if (is_unknown) {
    add(Feature::kUnknownBarrier);
  }
  if (opcode == "shfl" || opcode == "vote" || opcode == "match" || opcode == "redux" || opcode == "elect")
    add(Feature::kWarpSync);
  AddOperands(statement, instruction);
}

void Features::AddOperands(const Statement& statement, const Instruction& instruction) {
  VisitOperands(instruction.operands, [&](const Operand& operand) {
    if (operand.kind != OperandKind::kSpecialRegister) return;
    const auto add = [&](Feature feature) { Add(feature, statement.span.position, operand.name); };
    if (IsClusterRegister(operand.name)) add(Feature::kCluster);
    if (operand.name.starts_with("%envreg")) add(Feature::kEnvironment);
    if (operand.name == "%dynamic_smem_size") add(Feature::kDynamicSharedSize);
    if (operand.name == "%gridid") add(Feature::kGridId);
    if (operand.name == "%total_smem_size" || operand.name == "%aggr_smem_size") add(Feature::kTotalSharedSize);
    if (operand.name == "%ctaid" || operand.name == "%nctaid") {
      const bool is_vector = operand.component == 0 || operand.component == 'w';
      const bool is_narrow = instruction.opcode == "mov" && !instruction.modifiers.empty() &&
                             (instruction.modifiers.back().ends_with("16") || instruction.modifiers.back() == "pred");
      if (is_vector || is_narrow) add(Feature::kBlockIndexNarrow);
    }
  });
}

}  // namespace tally::ptx_transforms
