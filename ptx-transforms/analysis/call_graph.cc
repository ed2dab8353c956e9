#include "ptx-transforms/analysis/call_graph.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "ptx-transforms/analysis/visit.h"

namespace tally::ptx_transforms {
namespace {

bool IsSystemFunction(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kNames = {"vprintf", "malloc", "free", "__assertfail",
                                                             "__assert_fail"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

class Walk {
 public:
  Walk(const Module& module, Reach& reach) : reach_(reach) {
    for (const Item& item : module.items()) {
      if (const auto* function = std::get_if<Function>(&item.node)) {
        const Function*& known = functions_[function->name];
        if (known == nullptr || function->has_body) known = function;
      } else if (const auto* alias = std::get_if<Alias>(&item.node)) {
        aliases_[alias->name] = alias->target;
      }
    }
  }

  void From(const Function& kernel) {
    Push(kernel);
    while (!stack_.empty()) {
      Frame& top = stack_.back();
      if (top.next == top.callees.size()) {
        states_[top.function] = State::kDone;
        if (top.function != &kernel) reach_.functions.push_back(top.function);
        stack_.pop_back();
        continue;
      }
      Call(top.callees[top.next++]);
    }
  }

 private:
  enum class State : uint8_t { kOpen, kDone };
  struct Frame {
    const Function* function;
    std::vector<std::string_view> callees;
    size_t next = 0;
  };

  void Push(const Function& function) {
    states_[&function] = State::kOpen;
    Frame frame = {&function, {}};
    VisitInstructions(function.body, [&](const Statement&, const Instruction& instruction) {
      if (instruction.opcode != "call") return;
      const std::string_view callee = CalleeOf(instruction);
      if (callee.empty()) {
        reach_.has_indirect_calls = true;
      } else {
        frame.callees.push_back(callee);
      }
    });
    std::sort(frame.callees.begin(), frame.callees.end());
    frame.callees.erase(std::unique(frame.callees.begin(), frame.callees.end()), frame.callees.end());
    stack_.push_back(std::move(frame));
  }

  void Call(std::string_view name) {
    if (const auto alias = aliases_.find(name); alias != aliases_.end()) name = alias->second;
    const auto found = functions_.find(name);
    if (found == functions_.end() || !found->second->has_body) {
      auto& list = IsSystemFunction(name) ? reach_.system : reach_.unknown;
      if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
      return;
    }
    const auto state = states_.find(found->second);
    if (state == states_.end()) {
      Push(*found->second);
    } else if (state->second == State::kOpen) {
      reach_.is_recursive = true;
    }
  }

  Reach& reach_;
  std::unordered_map<std::string_view, const Function*> functions_;
  std::unordered_map<std::string_view, std::string_view> aliases_;
  std::unordered_map<const Function*, State> states_;
  std::vector<Frame> stack_;
};

}  // namespace

std::string_view CalleeOf(const Instruction& call) {
  for (const Operand& operand : call.operands) {
    if (operand.kind == OperandKind::kSymbol) return operand.name;
    if (operand.kind == OperandKind::kRegister) return {};
  }
  return {};
}

Reach FindReach(const Module& module, const Function& kernel) {
  Reach reach;
  bool has_calls = false;
  VisitInstructions(kernel.body, [&](const Statement&, const Instruction& i) { has_calls |= i.opcode == "call"; });
  // Most kernels call nothing; the names of the module need not be looked at then.
  if (has_calls) Walk(module, reach).From(kernel);
  return reach;
}

}  // namespace tally::ptx_transforms
