#include "ptx-transforms/analysis/spin_loops.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "ptx-transforms/analysis/loops.h"

namespace tally::ptx_transforms {
namespace {

bool IsShared(const Instruction& instruction) {
  return instruction.HasModifier("shared") || instruction.HasModifier("shared::cta");
}

// Of the thread alone, or not to change.
bool IsPrivateToThread(const Instruction& instruction) {
  static constexpr std::array<std::string_view, 6> kSpaces = {"local",       "param", "param::entry",
                                                              "param::func", "const", "nc"};
  return std::any_of(kSpaces.begin(), kSpaces.end(), [&](auto space) { return instruction.HasModifier(space); });
}

std::string Mnemonic(const Instruction& instruction) {
  std::string text(instruction.opcode);
  for (const std::string_view modifier : instruction.modifiers) (text += '.') += modifier;
  return text;
}

// What all tests of one function share.
class SpinFinder {
 public:
  SpinFinder(const ControlFlow& flow, WaitsFor waits_for)
      : waits_for_(waits_for),
        flow_(flow),
        body_(flow.body()),
        post_dominators_(flow, DominatorTree::Direction::kBackward),
        controllers_(ControlDependences(flow, post_dominators_)) {}

  std::optional<SpinLoop> Check(const Loop& loop);
  // Does the instruction read what the others may write meanwhile, whatever is around it?
  bool IsStrongRead(uint32_t index) const;

 private:
  // Nobody whom the search is about can write there.
  bool IsPrivate(const Instruction& instruction) const {
    return IsPrivateToThread(instruction) || (waits_for_ == WaitsFor::kOtherBlocks && IsShared(instruction));
  }
  bool IsWait(uint32_t index) const;
  bool IsChangedInLoop(const Operand& operand, uint32_t index) const;
  void AddRegister(RegisterId reg);
  void AddBranchesOver(uint32_t block, const Loop& loop);
  void AddInstruction(uint32_t index);
  bool ChangesByItself() const;

  const WaitsFor waits_for_;
  const ControlFlow& flow_;
  const LinearBody& body_;
  DominatorTree post_dominators_;
  std::vector<std::vector<uint32_t>> controllers_;
  // Of the loop under test.
  std::unordered_map<RegisterId, std::vector<uint32_t>> definitions_;
  std::unordered_set<RegisterId> seen_;
  std::unordered_set<uint32_t> seen_instructions_;
  std::unordered_set<uint32_t> seen_blocks_;
  std::vector<uint32_t> slice_;  // instructions that decide whether the loop ends
};

bool SpinFinder::IsChangedInLoop(const Operand& operand, uint32_t index) const {
  const RegisterId id = body_.RegisterOf(index, operand);
  return id != kNoRegister && definitions_.contains(id);
}

bool SpinFinder::IsStrongRead(uint32_t index) const {
  const Instruction& instruction = *body_[index].instruction;
  if (instruction.opcode == "multimem") return true;
  if (IsPrivate(instruction)) return false;
  if (instruction.opcode == "atom") return true;
  return instruction.opcode == "ld" && (instruction.HasModifier("volatile") || instruction.HasModifier("relaxed") ||
                                        instruction.HasModifier("acquire") || instruction.HasModifier("mmio"));
}

bool SpinFinder::IsWait(uint32_t index) const {
  const Instruction& instruction = *body_[index].instruction;
  if (instruction.opcode == "call") return true;
  if (!IsStrongRead(index)) return false;
  if (instruction.opcode != "atom") return true;
  if (instruction.HasModifier("inc") || instruction.HasModifier("dec")) return false;
  if (instruction.HasModifier("exch")) return true;
  const List<Operand>& operands = instruction.operands;
  if (operands.size() < 3) return true;
  if (instruction.HasModifier("add")) return operands[2].kind == OperandKind::kInteger && operands[2].bits == 0;
  for (size_t i = 2; i < operands.size(); ++i)
    if (IsChangedInLoop(operands[i], index)) return false;
  return true;
}

void SpinFinder::AddRegister(RegisterId reg) {
  if (!seen_.insert(reg).second) return;
  const auto found = definitions_.find(reg);
  if (found == definitions_.end()) return;
  for (const uint32_t index : found->second) AddInstruction(index);
}

void SpinFinder::AddInstruction(uint32_t index) {
  if (seen_instructions_.insert(index).second) slice_.push_back(index);
}

void SpinFinder::AddBranchesOver(uint32_t block, const Loop& loop) {
  if (!seen_blocks_.insert(block).second) return;
  for (const uint32_t controller : controllers_[block]) {
    if (!loop.Contains(controller)) continue;
    const uint32_t branch = flow_.block(controller).end - 1;
    for (const RegisterId reg : body_[branch].uses) AddRegister(reg);
  }
}

// Whether some value of the slice depends on its own value in the iteration before.
bool SpinFinder::ChangesByItself() const {
  std::unordered_map<uint32_t, std::vector<uint32_t>> users;
  std::unordered_map<uint32_t, uint32_t> num_inputs;
  for (const uint32_t index : slice_) {
    for (const RegisterId reg : body_[index].uses) {
      const auto found = definitions_.find(reg);
      if (found == definitions_.end()) continue;
      for (const uint32_t input : found->second) {
        users[input].push_back(index);
        ++num_inputs[index];
      }
    }
  }
  std::vector<uint32_t> ready;
  size_t num_done = 0;
  for (const uint32_t index : slice_)
    if (num_inputs[index] == 0) ready.push_back(index);
  while (!ready.empty()) {
    const uint32_t index = ready.back();
    ready.pop_back();
    ++num_done;
    for (const uint32_t user : users[index])
      if (--num_inputs[user] == 0) ready.push_back(user);
  }
  return num_done < slice_.size();
}

std::optional<SpinLoop> SpinFinder::Check(const Loop& loop) {
  definitions_.clear();
  seen_.clear();
  seen_instructions_.clear();
  seen_blocks_.clear();
  slice_.clear();
  for (const uint32_t block : loop.blocks)
    for (uint32_t i = flow_.block(block).begin; i < flow_.block(block).end; ++i)
      for (const RegisterId reg : body_[i].defines) definitions_[reg].push_back(i);
  for (const uint32_t block : loop.blocks) {
    const auto& successors = flow_.block(block).successors;
    if (std::all_of(successors.begin(), successors.end(), [&](uint32_t next) { return loop.Contains(next); })) continue;
    for (const RegisterId reg : body_[flow_.block(block).end - 1].uses) AddRegister(reg);
    AddBranchesOver(block, loop);
  }
  for (size_t next = 0; next < slice_.size(); ++next) {
    const uint32_t index = slice_[next];
    const auto& entry = body_[index];
    if (IsWait(index)) return SpinLoop{entry.statement->span.position, Mnemonic(*entry.instruction)};
    for (const RegisterId reg : entry.uses) AddRegister(reg);
    AddBranchesOver(flow_.BlockOf(index), loop);
  }
  if (ChangesByItself()) return std::nullopt;
  for (const uint32_t index : slice_) {
    const auto& entry = body_[index];
    if (entry.instruction->opcode == "ld" && !IsPrivate(*entry.instruction))
      return SpinLoop{entry.statement->span.position, Mnemonic(*entry.instruction)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<SpinLoop> FindSpinLoop(const ControlFlow& flow, WaitsFor waits_for) {
  const DominatorTree dominators(flow, DominatorTree::Direction::kForward);
  const Loops loops = FindLoops(flow, dominators);
  if (loops.loops.empty() && !loops.is_irreducible) return std::nullopt;
  SpinFinder finder(flow, waits_for);
  for (const Loop& loop : loops.loops)
    if (auto found = finder.Check(loop)) return found;
  if (!loops.is_irreducible) return std::nullopt;
  for (uint32_t index = 0; index < flow.body().size(); ++index) {
    if (!finder.IsStrongRead(index)) continue;
    const auto& entry = flow.body()[index];
    return SpinLoop{entry.statement->span.position, Mnemonic(*entry.instruction) + ", in a loop with two entries"};
  }
  return std::nullopt;
}

}  // namespace tally::ptx_transforms
