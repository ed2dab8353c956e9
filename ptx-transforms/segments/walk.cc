#include "ptx-transforms/segments/walk.h"

#include <algorithm>

#include "ptx-transforms/analysis/call_graph.h"

namespace tally::ptx_transforms {
namespace {

// More instructions (callees counted at each call) times registers than this, and nobody looks: hostile text must not
// take long. The largest kernels of Triton and nvcc need a tenth.
constexpr uint64_t kMaxWork = uint64_t{100} << 20;
// What a call costs, were its function empty: its blocks and dominators are found anew.
constexpr uint64_t kWorkOfCall = 2000;
constexpr size_t kMaxConditions = 32;
constexpr uint32_t kMaxClimb = 512;

}  // namespace

KernelWalk::Frame::Frame(const Function& callee)
    : function(callee), body(callee), flow(body), dominators(flow, DominatorTree::Direction::kForward) {
  leaving.resize(flow.blocks().size());
  branch_predicates.assign(flow.blocks().size(), kNoNode);
  registers.assign(body.num_registers(), kNoNode);
  returns.resize(callee.returns.size());
}

KernelWalk::KernelWalk(const Module& module, KernelSegments& segments)
    : module_(module), segments_(segments), formula_(segments.formula) {
  for (const Item& item : module.items()) {
    if (const auto* declaration = std::get_if<VariableDeclaration>(&item.node)) {
      for (const Variable& variable : declaration->variables) {
        const Variable*& known = module_variables_[variable.name];
        if (known == nullptr || known->linkage == Linkage::kExtern) known = &variable;
      }
    } else if (const auto* function = std::get_if<Function>(&item.node)) {
      const Function*& known = functions_[function->name];
      if (known == nullptr || function->has_body) known = function;
    } else if (const auto* alias = std::get_if<Alias>(&item.node)) {
      aliases_[alias->name] = alias->target;
    }
  }
}

void KernelWalk::Barrier(std::string_view code, std::string seen) {
  for (const SegmentBarrier& barrier : segments_.barriers)
    if (barrier.code == code) return;
  segments_.barriers.push_back({std::string(code), std::move(seen)});
}

void KernelWalk::Run(const Function& kernel) {
  uint32_t offset = 0;
  for (const Variable& parameter : kernel.parameters) {
    const uint32_t align = std::max<uint32_t>(parameter.Alignment(), 1);
    const uint64_t bytes = parameter.SizeBytes();
    if (bytes > UINT16_MAX * uint64_t{16} || align > 4096) return Barrier("parameters", std::string(parameter.name));
    offset = (offset + align - 1) / align * align;
    segments_.parameters.push_back({std::string(parameter.name), offset, static_cast<uint32_t>(bytes)});
    offset += static_cast<uint32_t>(bytes);
    if (offset > UINT16_MAX) return Barrier("parameters", std::string(parameter.name));
  }
  segments_.parameter_bytes = offset;
  Frame frame(kernel);
  frame.is_kernel = true;
  WalkFunction(frame);
}

void KernelWalk::CollectVariables(const std::vector<Statement>& statements, Frame& frame) {
  for (const Statement& statement : statements) {
    if (const auto* declaration = std::get_if<VariableDeclaration>(&statement.node)) {
      for (const Variable& variable : declaration->variables) {
        // Names are looked up without regard to braces, so none may mean two things that matter.
        const auto [at, is_new] = frame.variables.try_emplace(variable.name, &variable);
        bool is_unclear = variable.space == StateSpace::kGlobal || variable.space == StateSpace::kConst;
        is_unclear |= !is_new && at->second->space != variable.space;
        if (frame.is_kernel)
          for (const KernelParameterSlot& slot : segments_.parameters) is_unclear |= slot.name == variable.name;
        if (is_unclear) Barrier("names", std::string(variable.name));
      }
    } else if (const auto* registers = std::get_if<RegisterDeclaration>(&statement.node)) {
      const auto bits = static_cast<uint8_t>(registers->type == ScalarType::kPred || registers->vector_width > 1
                                                 ? 0
                                                 : ScalarTypeBytes(registers->type) * 8);
      for (const RegisterDeclaration::Name& name : registers->names) {
        const auto [at, is_new] = frame.register_bits.try_emplace(name.name, bits);
        if (!is_new && at->second != bits) at->second = 0;
      }
    } else if (const auto* block = std::get_if<Block>(&statement.node)) {
      CollectVariables(block->statements, frame);
    }
  }
}

void KernelWalk::PlaceLoops(Frame& frame) {
  frame.masks.assign(frame.flow.blocks().size(), frame.context_mask);
  const Loops found = FindLoops(frame.flow, frame.dominators);
  if (found.is_irreducible) {
    is_given_up_ = true;
    return Barrier("flow", std::string(frame.function.name));
  }
  for (const Loop& loop : found.loops) {
    auto at = std::find_if(frame.loops.begin(), frame.loops.end(),
                           [&](const HeadedLoop& known) { return known.header == loop.header; });
    if (at == frame.loops.end()) {
      frame.loops.push_back({.header = loop.header, .contains = std::vector<bool>(frame.flow.blocks().size())});
      at = std::prev(frame.loops.end());
      at->index = static_cast<uint32_t>(segments_.loops.size());
      const auto& first = frame.body[frame.flow.block(loop.header).begin];
      segments_.loops.push_back({.tests = {}, .position = first.statement->span.position});
    }
    at->latches.push_back(loop.latch);
    for (const uint32_t block : loop.blocks) at->contains[block] = true;
    num_walked_ += loop.blocks.size();
  }
  for (const HeadedLoop& loop : frame.loops)
    for (uint32_t b = 0; b < frame.masks.size(); ++b)
      if (loop.contains[b]) frame.masks[b] |= uint64_t{1} << std::min(loop.index, kManyLoops);
}

void KernelWalk::WalkFunction(Frame& frame) {
  num_walked_ += kWorkOfCall;
  CollectVariables(frame.function.body, frame);
  if (!frame.body.unresolved().empty() || !frame.body.opaque().empty()) {
    is_given_up_ = true;
    return Barrier("not-understood", std::string(frame.function.name));
  }
  PlaceLoops(frame);
  const std::vector<NodeId> at_entry = frame.registers;  // what the caller passed in registers
  std::vector<uint32_t> users(frame.flow.blocks().size());
  for (const uint32_t block : frame.flow.reverse_post_order()) {
    if (is_given_up_) return;
    if (block == frame.flow.exit_block()) continue;
    num_walked_ += frame.body.num_registers() + (frame.flow.block(block).end - frame.flow.block(block).begin);
    if (num_walked_ > kMaxWork || formula_.size() > (size_t{1} << 22)) {
      is_given_up_ = true;
      return Barrier("too-large", std::string(frame.function.name));
    }
    frame.block = block;
    if (block != 0) {
      EnterBlock(frame);
    } else {
      frame.registers = at_entry;
    }
    for (HeadedLoop& loop : frame.loops)
      if (loop.header == block) EnterLoop(frame, loop);
    frame.conditions = ConditionsOf(frame);
    frame.pieces.clear();
    for (frame.index = frame.flow.block(block).begin; frame.index < frame.flow.block(block).end && !is_given_up_;
         ++frame.index)
      Walk(frame);
    LeaveBlock(frame);
    // States that nobody will read any more.
    for (const uint32_t before : frame.flow.block(block).predecessors) {
      const auto& successors = frame.flow.block(before).successors;
      if (++users[before] == successors.size()) frame.leaving[before] = {};
    }
  }
  if (!is_given_up_) FinishLoops(frame);
}

NodeId KernelWalk::Merged(Frame& frame, const std::vector<NodeId>& values) {
  if (values.empty()) return kNoNode;
  const NodeId first = values[0];
  if (std::all_of(values.begin(), values.end(), [&](NodeId value) { return value == first; })) return first;
  if (std::find(values.begin(), values.end(), kNoNode) != values.end()) return kNoNode;
  uint8_t bits = 0;
  for (const NodeId value : values) bits = std::max(bits, formula_[value].bits);
  std::vector<NodeId> choices;
  for (const NodeId value : values) {
    if (formula_[value].bits != bits) return formula_.Opaque(bits, MaskOf(bits), values, frame.masks[frame.block]);
    if (std::find(choices.begin(), choices.end(), value) == choices.end()) choices.push_back(value);
  }
  return formula_.Choice(bits, choices, frame.masks[frame.block]);
}

void KernelWalk::EnterBlock(Frame& frame) {
  const auto& predecessors = frame.flow.block(frame.block).predecessors;
  std::vector<const std::vector<NodeId>*> states;
  for (const uint32_t before : predecessors)
    if (!frame.leaving[before].empty()) states.push_back(&frame.leaving[before]);
  if (states.size() == 1) {
    frame.registers = *states[0];
    return;
  }
  std::vector<NodeId> merged(frame.body.num_registers(), kNoNode);
  std::vector<NodeId> values;
  for (RegisterId reg = 0; reg < merged.size(); ++reg) {
    values.clear();
    bool is_same = true;
    for (const auto* state : states) is_same &= (*state)[reg] == (*states[0])[reg];
    if (states.empty()) break;
    if (is_same) {
      merged[reg] = (*states[0])[reg];
      continue;
    }
    for (const auto* state : states) values.push_back((*state)[reg]);
    merged[reg] = Merged(frame, values);
  }
  frame.registers = std::move(merged);
}

void KernelWalk::EnterLoop(Frame& frame, HeadedLoop& loop) {
  std::vector<bool> is_changed(frame.body.num_registers());
  for (uint32_t b = 0; b < loop.contains.size(); ++b) {
    if (!loop.contains[b]) continue;
    for (uint32_t i = frame.flow.block(b).begin; i < frame.flow.block(b).end; ++i)
      for (const RegisterId reg : frame.body[i].defines) is_changed[reg] = true;
    num_walked_ += frame.flow.block(b).end - frame.flow.block(b).begin;
  }
  for (RegisterId reg = 0; reg < is_changed.size(); ++reg) {
    const NodeId start = frame.registers[reg];
    if (!is_changed[reg] || start == kNoNode) continue;
    const auto index = static_cast<uint32_t>(segments_.inductions.size());
    segments_.inductions.push_back({.loop = loop.index});
    loop.inductions.emplace_back(reg, index);
    const NodeId node = formula_.Induction(formula_[start].bits, index, start, frame.masks[frame.block]);
    segments_.inductions.back().node = node;
    frame.registers[reg] = node;
  }
}

void KernelWalk::LeaveBlock(Frame& frame) {
  const uint32_t last = frame.flow.block(frame.block).end - 1;
  const Instruction& instruction = *frame.body[last].instruction;
  if (EndsBasicBlock(instruction) && instruction.guard.is_present()) {
    frame.index = last;
    frame.branch_predicates[frame.block] = GuardOf(frame);
  }
  for (HeadedLoop& loop : frame.loops) {
    if (std::find(loop.latches.begin(), loop.latches.end(), frame.block) == loop.latches.end()) continue;
    for (const auto& [reg, index] : loop.inductions)
      segments_.inductions[index].latches.push_back(frame.registers[reg]);
  }
  const auto& successors = frame.flow.block(frame.block).successors;
  const bool runs_off = std::find(successors.begin(), successors.end(), frame.flow.exit_block()) != successors.end();
  if (runs_off && instruction.opcode != "ret") {
    frame.index = last;
    Return(frame);
  }
  frame.leaving[frame.block] = frame.registers;
}

// What the branches say that every way to the block passes. The same round of every loop: a branch that dominates is
// passed in every round of the loops around it, so it only must not lie in a loop that the access does not.
std::vector<AccessCondition> KernelWalk::ConditionsOf(Frame& frame) const {
  std::vector<AccessCondition> conditions = frame.context;
  uint32_t block = frame.block;
  for (uint32_t climbed = 0; block != 0 && block != kNoBlock && climbed < kMaxClimb; ++climbed) {
    const uint32_t below = block;
    block = frame.dominators.parent(block);
    const auto& predecessors = frame.flow.block(below).predecessors;
    if (predecessors.size() != 1 || conditions.size() >= kMaxConditions) continue;
    const uint32_t branch = predecessors[0];
    const NodeId predicate = frame.branch_predicates[branch];
    const bool is_in_more_loops = (frame.masks[branch] & ~frame.masks[frame.block]) != 0;
    const bool is_in_many = (frame.masks[branch] >> kManyLoops & 1) != 0;
    if (predicate == kNoNode || is_in_more_loops || is_in_many) continue;
    const uint32_t last = frame.flow.block(branch).end - 1;
    const auto& entry = frame.body[last];
    bool holds = false;  // what comes next in the text comes where the guard is false
    if (entry.instruction->opcode == "bra") {
      if (frame.flow.block(branch).successors.size() != 2 || entry.targets.size() != 1) continue;
      holds = frame.flow.BlockOf(entry.targets[0]) == below;
    } else if (entry.instruction->opcode == "brx") {
      continue;
    }
    conditions.push_back({predicate, holds});
  }
  return conditions;
}

void KernelWalk::FinishLoops(Frame& frame) {
  for (const HeadedLoop& loop : frame.loops) {
    for (const auto& [reg, index] : loop.inductions) {
      InductionVariable& induction = segments_.inductions[index];
      if (loop.index < kManyLoops) induction.step = StepOfAll(induction.latches, induction.node, loop.index);
    }
  }
  for (HeadedLoop& loop : frame.loops) {
    if (loop.index >= kManyLoops) continue;
    CountedLoop& counted = segments_.loops[loop.index];
    for (uint32_t b = 0; b < loop.contains.size(); ++b) {
      if (!loop.contains[b] || frame.branch_predicates[b] == kNoNode) continue;
      const bool is_in_every_round = std::all_of(loop.latches.begin(), loop.latches.end(),
                                                 [&](uint32_t latch) { return frame.dominators.Dominates(b, latch); });
      // A branch of an inner loop is passed in every round of that one.
      const bool is_inner = frame.masks[b] != frame.masks[loop.header] || (frame.masks[b] >> kManyLoops & 1) != 0;
      if (!is_in_every_round || is_inner) continue;
      const auto& entry = frame.body[frame.flow.block(b).end - 1];
      bool taken_leaves = true, next_leaves = true;
      const bool is_branch = entry.instruction->opcode == "bra" && entry.targets.size() == 1;
      if (entry.instruction->opcode == "brx") continue;
      if (is_branch) taken_leaves = !loop.contains[frame.flow.BlockOf(entry.targets[0])];
      next_leaves = !loop.contains[frame.flow.BlockOf(frame.flow.block(b).end)];
      if (taken_leaves == next_leaves) continue;
      AddTripTest(counted, loop.index, frame.branch_predicates[b], next_leaves);
    }
  }
}

}  // namespace tally::ptx_transforms
