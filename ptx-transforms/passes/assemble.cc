#include "ptx-transforms/passes/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "ptx-transforms/passes/edit.h"
#include "ptx-transforms/syntax/printer.h"

namespace tally::ptx_transforms {
namespace {

Item DeclarationItem(Module& module, const std::string& text) {
  Item item;
  item.edited = true;
  item.node = std::get<VariableDeclaration>(ParseSnippet(module, text).at(0).node);
  return item;
}

Item FunctionItem(Function function) {
  Item item;
  item.edited = true;
  item.node = std::move(function);
  return item;
}

// Line tables and debug sections name the original's code: a copy has no use for them.
void DropLineTables(std::vector<Statement>& statements) {
  std::erase_if(statements, [](const Statement& s) { return std::holds_alternative<LocDirective>(s.node); });
  for (Statement& statement : statements)
    if (auto* block = std::get_if<Block>(&statement.node)) DropLineTables(block->statements);
}

void DropDebug(Module& module) {
  std::erase_if(module.items(), [](const Item& item) {
    const auto* opaque = std::get_if<Opaque>(&item.node);
    return (opaque != nullptr && opaque->reason.empty()) || std::holds_alternative<FileDirective>(item.node);
  });
  for (Item& item : module.items()) {
    if (auto* function = std::get_if<Function>(&item.node)) {
      DropLineTables(function->body);
    } else if (auto* target = std::get_if<TargetDirective>(&item.node)) {
      std::vector<std::string_view> targets(target->targets.begin(), target->targets.end());
      if (std::erase(targets, "debug") == 0) continue;
      target->targets = module.arena().Copy(std::span<const std::string_view>(targets));
      item.edited = true;
    }
  }
}

// Everything that finished variants with their own callees do not need.
void DropOriginals(Module& module, bool keeps_variables) {
  std::unordered_set<std::string_view> defined;
  for (const Item& item : module.items())
    if (const auto* function = std::get_if<Function>(&item.node); function != nullptr && function->has_body)
      defined.insert(function->name);
  std::erase_if(module.items(), [&](const Item& item) {
    if (const auto* function = std::get_if<Function>(&item.node))
      return function->is_entry || defined.contains(function->name);
    if (std::holds_alternative<Alias>(item.node)) return true;
    const auto* declaration = std::get_if<VariableDeclaration>(&item.node);
    if (keeps_variables || declaration == nullptr) return false;
    return std::all_of(declaration->variables.begin(), declaration->variables.end(), [](const Variable& variable) {
      return variable.space != StateSpace::kShared && !IsLiteral(variable);
    });
  });
}

}  // namespace

std::string VariantText(const Variant& variant) {
  Module& module = variant.module;
  std::string text = fmt::format(".version {}.{}\n.target {}\n.address_size {}\n", module.version.major,
                                 module.version.minor, fmt::join(module.targets, ", "), module.address_size);
  for (const std::string& declaration : variant.declarations) text += declaration + "\n";
  for (const Function& function : variant.functions) text += PrintItem(module, FunctionItem(function)) + "\n";
  return text + PrintItem(module, FunctionItem(variant.kernel)) + "\n";
}

std::string ImportTableName(std::string_view prefix) { return std::string(prefix) + "imports"; }

void PlaceVariants(Module& module, std::vector<Variant>& variants, const ImportTable& imports, std::string_view prefix,
                   Placement placement) {
  std::vector<Item> added;
  std::unordered_set<std::string_view> replaced;
  std::unordered_set<std::string> declared;
  bool needs_variables = false;
  if (!imports.variables().empty())
    added.push_back(DeclarationItem(module, fmt::format(".visible .const .align 8 .b64 {}[{}];",
                                                        ImportTableName(prefix), imports.variables().size())));
  for (Variant& variant : variants) {
    replaced.insert(variant.original.name);
    needs_variables |= !variant.has_imports;
    for (const std::string& declaration : variant.declarations)
      if (declared.insert(declaration).second) added.push_back(DeclarationItem(module, declaration));
    for (const Function& function : variant.functions) {
      Function head = function;  // declared before any is defined, as they may call one another in any order
      head.has_body = false;
      head.body.clear();
      added.push_back(FunctionItem(std::move(head)));
    }
    for (Function& function : variant.functions) added.push_back(FunctionItem(std::move(function)));
    added.push_back(FunctionItem(std::move(variant.kernel)));
  }
  for (Item& item : added)
    if (auto* function = std::get_if<Function>(&item.node)) DropLineTables(function->body);
  if (placement == Placement::kReplace) {
    DropDebug(module);
    std::erase_if(module.items(), [&](const Item& item) {
      const auto* function = std::get_if<Function>(&item.node);
      return function != nullptr && function->is_entry && replaced.contains(function->name);
    });
  } else if (placement == Placement::kOnly) {
    DropDebug(module);
    DropOriginals(module, needs_variables);
  }
  for (Item& item : added) module.items().push_back(std::move(item));
}

}  // namespace tally::ptx_transforms
