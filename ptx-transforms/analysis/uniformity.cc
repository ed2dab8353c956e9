#include "ptx-transforms/analysis/uniformity.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "ptx-transforms/analysis/barrier_sites.h"
#include "ptx-transforms/analysis/visit.h"

namespace tally::ptx_transforms {
namespace {

constexpr uint64_t kWarpThreads = 32;

Variance Max(Variance a, Variance b) { return std::max(a, b); }

// The result depends on the operands and nothing else.
bool IsPure(std::string_view opcode) {
  static const std::unordered_set<std::string_view> kOpcodes = {
      "abs",  "add",   "addc", "and",   "bfe",   "bfi",  "bfind", "bmsk",  "brev", "clz",      "cnot", "copysign",
      "cos",  "cvt",   "cvta", "div",   "dp2a",  "dp4a", "ex2",   "fma",   "fns",  "isspacep", "lg2",  "lop3",
      "mad",  "mad24", "madc", "max",   "min",   "mov",  "mul",   "mul24", "neg",  "not",      "or",   "popc",
      "prmt", "rcp",   "rem",  "rsqrt", "sad",   "selp", "set",   "setp",  "shf",  "shl",      "shr",  "sin",
      "slct", "sqrt",  "sub",  "subc",  "szext", "tanh", "testp", "xor"};
  return kOpcodes.contains(opcode);
}

bool IsParameterOf(const Function& function, std::string_view name) {
  return std::any_of(function.parameters.begin(), function.parameters.end(),
                     [&](const Variable& parameter) { return parameter.name == name; });
}

}  // namespace

Uniformity::Uniformity(const ControlFlow& flow, const UniformityOptions& options)
    : flow_(flow),
      body_(flow.body()),
      options_(options),
      controllers_(ControlDependences(flow, DominatorTree(flow, DominatorTree::Direction::kBackward))),
      registers_(body_.num_registers(), Variance::kBlock),
      blocks_(flow.blocks().size(), Variance::kBlock) {
  is_thread_x_.assign(body_.num_registers(), false);
  std::vector<uint32_t> num_definitions(body_.num_registers(), 0);
  for (uint32_t i = 0; i < body_.size(); ++i) {
    const auto& entry = body_[i];
    for (const RegisterId reg : entry.defines) ++num_definitions[reg];
    const Instruction& instruction = *entry.instruction;
    if (instruction.opcode != "mov" || instruction.operands.size() != 2 || entry.defines.size() != 1) continue;
    const Operand& source = instruction.operands[1];
    is_thread_x_[entry.defines[0]] =
        source.kind == OperandKind::kSpecialRegister && source.name == "%tid" && source.component == 'x';
  }
  for (RegisterId reg = 0; reg < body_.num_registers(); ++reg)
    if (num_definitions[reg] != 1) is_thread_x_[reg] = false;
  if (!body_.function().is_entry)  // the arguments may differ, and so may who calls
    for (uint32_t b = 0; b < flow.blocks().size(); ++b) blocks_[b] = Variance::kThread;
  // Values only ever become more varied, so this ends.
  do {
    while (SpreadRegisters()) {
    }
  } while (SpreadBlocks());
}

Variance Uniformity::OfSpecialRegister(const Operand& operand) const {
  const std::string_view name = operand.name;
  if (name == "%ctaid" || name == "%nctaid" || name == "%ntid" || name == "%dynamic_smem_size" ||
      name == "%total_smem_size" || name == "%aggr_smem_size" || name == "%gridid" || name == "%nwarpid")
    return Variance::kBlock;
  if (name == "%tid" && options_.warps_are_rows && (operand.component == 'y' || operand.component == 'z'))
    return Variance::kWarp;
  return Variance::kThread;
}

bool Uniformity::IsThreadX(uint32_t index, const Operand& operand) const {
  if (operand.kind == OperandKind::kSpecialRegister) return operand.name == "%tid" && operand.component == 'x';
  const RegisterId id = body_.RegisterOf(index, operand);
  return id != kNoRegister && is_thread_x_[id];
}

// Whether the instruction computes something of %tid.x that all threads of a row's warp agree on: tid.x >> 5 and
// further, tid.x & ~31, tid.x < 64.
bool Uniformity::IsWarpOfThreadX(uint32_t index) const {
  if (!options_.warps_are_rows) return false;
  const Instruction& instruction = *body_[index].instruction;
  const List<Operand>& operands = instruction.operands;
  if (operands.size() != 3 || operands[2].kind != OperandKind::kInteger || !IsThreadX(index, operands[1])) return false;
  const uint64_t constant = operands[2].bits & 0xFFFFFFFF;
  if (instruction.opcode == "shr") return constant >= 5 && constant < 32;
  if (instruction.opcode == "and") return constant % kWarpThreads == 0;
  if (instruction.opcode == "div") return constant != 0 && constant % kWarpThreads == 0;
  if (instruction.opcode != "setp" || instruction.modifiers.empty()) return false;
  const std::string_view test = instruction.modifiers[0];
  if (test == "lt" || test == "ge" || test == "lo" || test == "hs") return constant % kWarpThreads == 0;
  if (test == "gt" || test == "le" || test == "hi" || test == "ls") return (constant + 1) % kWarpThreads == 0;
  return false;
}

Variance Uniformity::OfOperands(uint32_t index) const {
  Variance variance = Variance::kBlock;
  for (const RegisterId reg : body_[index].uses) variance = Max(variance, registers_[reg]);
  VisitOperands(body_[index].instruction->operands, [&](const Operand& operand) {
    if (operand.kind == OperandKind::kSpecialRegister) variance = Max(variance, OfSpecialRegister(operand));
  });
  return variance;
}

Variance Uniformity::OfDefinition(uint32_t index) const {
  const Instruction& instruction = *body_[index].instruction;
  const Variance execution = OfExecution(index);
  if (IsWarpOfThreadX(index)) return Max(execution, Variance::kWarp);
  if (IsPure(instruction.opcode)) return Max(execution, OfOperands(index));
  if (instruction.opcode == "ld") {
    if (instruction.HasModifier("param") || instruction.HasModifier("param::entry")) {
      const bool is_of_kernel = body_.function().is_entry && instruction.operands.size() == 2 &&
                                IsParameterOf(body_.function(), instruction.operands[1].name);
      if (!is_of_kernel) return Variance::kThread;
    } else if (!instruction.HasModifier("const") && !instruction.HasModifier("nc")) {
      // Other memory may change between the loads of two warps. The lanes of one load from one place at once (and a
      // weak load that raced with a write between two of them would be undefined).
      const bool is_volatile = instruction.HasModifier("volatile") || instruction.HasModifier("relaxed") ||
                               instruction.HasModifier("acquire") || instruction.HasModifier("mmio");
      const bool is_of_all = instruction.HasModifier("global") || instruction.HasModifier("shared") ||
                             instruction.HasModifier("shared::cta");
      if (is_volatile || !is_of_all) return Variance::kThread;
      return Max(Max(execution, OfOperands(index)), Variance::kWarp);
    }
    return Max(execution, OfOperands(index));
  }
  if (const auto site = BarrierSiteOf(instruction);
      site && site->kind == BarrierSite::Kind::kReduce && site->is_for_all())
    return execution;
  return Variance::kThread;
}

Variance Uniformity::OfExecution(uint32_t index) const {
  const Instruction& instruction = *body_[index].instruction;
  Variance variance = blocks_[flow_.BlockOf(index)];
  if (!instruction.guard.is_present()) return variance;
  const Operand guard = {.kind = OperandKind::kRegister, .name = instruction.guard.predicate};
  const RegisterId id = body_.RegisterOf(index, guard);
  return Max(variance, id == kNoRegister ? Variance::kThread : registers_[id]);
}

Variance Uniformity::OfBranch(uint32_t block) const {
  if (flow_.block(block).successors.size() < 2) return blocks_[block];
  return Max(blocks_[block], OfOperands(flow_.block(block).end - 1));
}

bool Uniformity::SpreadRegisters() {
  bool changed = false;
  for (uint32_t i = 0; i < body_.size(); ++i) {
    if (body_[i].defines.empty()) continue;
    const Variance variance = OfDefinition(i);
    for (const RegisterId reg : body_[i].defines) {
      if (registers_[reg] >= variance) continue;
      registers_[reg] = variance;
      changed = true;
    }
  }
  return changed;
}

bool Uniformity::SpreadBlocks() {
  bool changed = false;
  for (uint32_t b = 0; b < flow_.blocks().size(); ++b) {
    Variance variance = blocks_[b];
    for (const uint32_t controller : controllers_[b]) {
      const bool is_ignored = options_.ignored_branches != nullptr && (*options_.ignored_branches)[controller];
      if (!is_ignored) variance = Max(variance, OfBranch(controller));
    }
    changed |= variance != blocks_[b];
    blocks_[b] = variance;
  }
  return changed;
}

std::vector<uint32_t> Uniformity::AllControllersOf(std::vector<uint32_t> blocks) const {
  std::vector<bool> is_found(controllers_.size(), false);
  std::vector<uint32_t> found;
  while (!blocks.empty()) {
    const uint32_t block = blocks.back();
    blocks.pop_back();
    for (const uint32_t controller : controllers_[block]) {
      if (is_found[controller]) continue;
      is_found[controller] = true;
      found.push_back(controller);
      blocks.push_back(controller);
    }
  }
  return found;
}

}  // namespace tally::ptx_transforms
