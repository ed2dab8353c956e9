#include "ptx-transforms/passes/open_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "ptx-transforms/passes/edit.h"

namespace tally::ptx_transforms {
namespace {

using Name = RegisterDeclaration::Name;

// Whether `used` is declared by `declared`: itself, or by its number in a range.
bool Declares(const Name& declared, std::string_view used) {
  if (!declared.is_range) return used == declared.name;
  if (!used.starts_with(declared.name)) return false;
  const std::string_view number = used.substr(declared.name.size());
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  return error == std::errc() && end == number.data() + number.size() && value < declared.count;
}

class Renaming {
 public:
  Renaming(Variant& variant, uint32_t number)
      : variant_(variant), prefix_(variant.Register(fmt::format("block{}", number))) {}

  void Rename(RegisterDeclaration& declaration) {
    std::vector<Name> names(declaration.names.begin(), declaration.names.end());
    for (Name& name : names) {
      own_.push_back(name);
      name.name = NewNameOf(name.name);
    }
    declaration.names = variant_.module.arena().Copy(std::span<const Name>(names));
  }

  bool Rename(Instruction& instruction) {
    bool is_edited = EditOperands(variant_.module.arena(), instruction.operands,
                                  [this](const Operand& operand) -> std::optional<Operand> {
                                    if (operand.name.empty() || !IsOwn(operand.name)) return std::nullopt;
                                    Operand renamed = operand;
                                    renamed.name = NewNameOf(operand.name);
                                    return renamed;
                                  });
    if (instruction.guard.is_present() && IsOwn(instruction.guard.predicate)) {
      instruction.guard.predicate = NewNameOf(instruction.guard.predicate);
      is_edited = true;
    }
    return is_edited;
  }

 private:
  bool IsOwn(std::string_view name) const {
    return std::any_of(own_.begin(), own_.end(), [&](const Name& own) { return Declares(own, name); });
  }
  std::string_view NewNameOf(std::string_view name) {
    const bool has_percent = name.starts_with('%');
    if (has_percent) name.remove_prefix(1);
    return variant_.module.arena().Keep(prefix_ + (has_percent ? '_' : '$') + std::string(name));
  }

  Variant& variant_;
  const std::string prefix_;
  std::vector<Name> own_;
};

}  // namespace

bool CanOpenBlock(const Block& block) {
  return std::all_of(block.statements.begin(), block.statements.end(), [](const Statement& statement) {
    return std::holds_alternative<Instruction>(statement.node) ||
           std::holds_alternative<RegisterDeclaration>(statement.node) ||
           std::holds_alternative<LocDirective>(statement.node);
  });
}

std::vector<Statement> OpenBlock(Variant& variant, Block block, uint32_t number) {
  Renaming renaming(variant, number);
  for (Statement& statement : block.statements) {
    if (auto* declaration = std::get_if<RegisterDeclaration>(&statement.node)) {
      renaming.Rename(*declaration);
      statement.edited = true;
    } else if (auto* instruction = std::get_if<Instruction>(&statement.node)) {
      statement.edited |= renaming.Rename(*instruction);
    }
  }
  return std::move(block.statements);
}

}  // namespace tally::ptx_transforms
