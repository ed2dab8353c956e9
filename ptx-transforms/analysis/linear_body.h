// The body of a function as one sequence of instructions, with scopes, labels and registers resolved: what every
// analysis starts from. Nested { } only matter for names; here they are gone.
//
// Holds pointers into the tree: build it anew after an edit.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx-transforms/syntax/ast.h"

namespace tally::ptx_transforms {

// One declared register (each %r17 of %r<100> by itself; a vector register is one). Dense from 0 within a LinearBody;
// only registers that are used have one.
using RegisterId = uint32_t;
// The carry flag of add.cc and its kin, written and read without being named.
inline constexpr RegisterId kCarryRegister = 0;
inline constexpr RegisterId kNoRegister = ~RegisterId{0};

class LinearBody {
 public:
  explicit LinearBody(const Function& function);

  struct Entry {
    const Statement* statement = nullptr;
    const Instruction* instruction = nullptr;
    std::span<const RegisterId> defines = {};
    std::span<const RegisterId> uses = {};   // the guard's predicate included
    std::span<const uint32_t> targets = {};  // of a branch: indices of entries; size() is the end of the body
  };

  const Function& function() const { return function_; }
  size_t size() const { return entries_.size(); }
  const Entry& operator[](size_t index) const { return entries_[index]; }
  const std::vector<Entry>& entries() const { return entries_; }
  size_t num_registers() const { return num_registers_; }

  // Labels and registers that nothing declares, and labels that are declared twice. Empty in every sound function.
  std::span<const std::string_view> unresolved() const { return unresolved_; }
  // Statements that the parser kept without understanding them.
  std::span<const Statement* const> opaque() const { return opaque_; }

  // The register that an operand of entry `index` names; kNoRegister if it is none.
  RegisterId RegisterOf(size_t index, const Operand& operand) const;

 private:
  struct Scope {
    uint32_t parent = 0;
    std::unordered_map<std::string_view, uint32_t> labels;  // to the index of the next instruction
    std::unordered_map<std::string_view, const TargetList*> target_lists;
    std::unordered_map<std::string_view, uint32_t> registers;  // %x
    std::unordered_map<std::string_view, uint32_t> ranges;     // %r<100>: 100
    std::unordered_map<std::string_view, RegisterId> used;     // ids given to names declared here
  };

  void Collect(const std::vector<Statement>& statements, uint32_t scope);
  void Resolve(uint32_t index);
  RegisterId Find(uint32_t scope, std::string_view name, bool may_add);
  void AddRegisters(uint32_t scope, const Operand& operand, bool is_inside_address, std::vector<RegisterId>& defines,
                    std::vector<RegisterId>& uses, bool is_destination);
  void AddTarget(uint32_t scope, std::string_view label, std::vector<uint32_t>& targets);

  const Function& function_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> entry_scopes_;
  std::vector<Scope> scopes_;
  std::vector<std::vector<uint32_t>> storage_;  // behind the spans of the entries
  size_t num_registers_ = 1;                    // the carry flag
  std::vector<std::string_view> unresolved_;
  std::vector<const Statement*> opaque_;
};

}  // namespace tally::ptx_transforms
