#include "ptx-transforms/syntax/node_text.h"

#include <fmt/format.h>

#include <iterator>

namespace tally::ptx_transforms {
namespace {

template <typename T, typename F>
void Join(std::string& out, const List<T>& items, std::string_view separator, F print) {
  bool is_first = true;
  for (const T& item : items) {
    if (!is_first) out += separator;
    is_first = false;
    print(item);
  }
}

template <typename... T>
void Format(std::string& out, fmt::format_string<T...> format, T&&... values) {
  fmt::format_to(std::back_inserter(out), format, std::forward<T>(values)...);
}

void AddOffset(std::string& out, int64_t offset) {
  if (offset != 0) Format(out, "+{}", offset);
}

void AddInteger(std::string& out, uint64_t bits, bool is_unsigned) {
  if (is_unsigned) {
    Format(out, "{}U", bits);
  } else {
    Format(out, "{}", static_cast<int64_t>(bits));
  }
}

void AddName(std::string& out, const Operand& operand) {
  out += operand.name;
  if (operand.component != 0) {
    out += '.';
    out += operand.component;
  }
}

void AddInitializer(std::string& out, const Initializer& initializer) {
  const auto add_address = [&] {
    Format(out, fmt::runtime(initializer.is_generic ? "generic({})" : "{}"), initializer.name);
    AddOffset(out, initializer.offset);
  };
  switch (initializer.kind) {
    case Initializer::Kind::kInteger:
      Format(out, "{}", static_cast<int64_t>(initializer.bits));
      break;
    case Initializer::Kind::kFloat32:
      Format(out, "0f{:08X}", initializer.bits & 0xFFFFFFFF);
      break;
    case Initializer::Kind::kFloat64:
      Format(out, "0d{:016X}", initializer.bits);
      break;
    case Initializer::Kind::kSymbol:
      add_address();
      break;
    case Initializer::Kind::kMask:
      Format(out, "0x{:X}(", initializer.bits);
      add_address();
      out += ')';
      break;
    case Initializer::Kind::kList:
      out += '{';
      Join(out, initializer.elements, ", ", [&out](const Initializer& element) { AddInitializer(out, element); });
      out += '}';
      break;
  }
}

void AddAttributes(std::string& out, const List<std::string_view>& attributes) {
  if (attributes.empty()) return;
  out += ".attribute(";
  Join(out, attributes, ", ", [&out](std::string_view attribute) { out += attribute; });
  out += ") ";
}

// What several variables of one declaration share.
void AddSpecifiers(std::string& out, const Variable& variable) {
  if (variable.linkage != Linkage::kInternal) Format(out, ".{} ", LinkageName(variable.linkage));
  Format(out, ".{} ", StateSpaceName(variable.space));
  AddAttributes(out, variable.attributes);
  // In a pointer parameter the alignment behind .ptr is that of its target.
  if (variable.align != 0) Format(out, ".align {} ", variable.align);
  if (variable.vector_width > 1) Format(out, ".v{} ", variable.vector_width);
  Format(out, ".{} ", variable.type_name);
  if (!variable.pointer.is_present) return;
  out += ".ptr ";
  if (variable.pointer.space != StateSpace::kNone) Format(out, ".{} ", StateSpaceName(variable.pointer.space));
  if (variable.pointer.align != 0) Format(out, ".align {} ", variable.pointer.align);
}

void AddDeclarator(std::string& out, const Variable& variable) {
  out += variable.name;
  for (const uint64_t dimension : variable.dimensions) {
    if (dimension == Variable::kUnspecifiedDimension) {
      out += "[]";
    } else {
      Format(out, "[{}]", dimension);
    }
  }
  if (!variable.has_initializer) return;
  out += " = ";
  AddInitializer(out, variable.initializer);
}

void AddVariables(std::string& out, const VariableDeclaration& declaration) {
  if (declaration.variables.empty()) return;
  AddSpecifiers(out, declaration.variables.front());
  Join(out, declaration.variables, ", ", [&out](const Variable& variable) { AddDeclarator(out, variable); });
  out += ';';
}

void AddParameters(std::string& out, const List<Variable>& parameters) {
  out += '(';
  Join(out, parameters, ", ", [&out](const Variable& parameter) { AddVariable(out, parameter); });
  out += ')';
}

void AddRegisters(std::string& out, const RegisterDeclaration& declaration) {
  out += ".reg ";
  if (declaration.vector_width > 1) Format(out, ".v{} ", declaration.vector_width);
  Format(out, ".{} ", declaration.type_name);
  Join(out, declaration.names, ", ", [&out](const RegisterDeclaration::Name& name) {
    out += name.name;
    if (name.is_range) Format(out, "<{}>", name.count);
  });
  out += ';';
}

void AddStrings(std::string& out, const List<std::string_view>& strings) {
  Join(out, strings, ", ", [&out](std::string_view text) { Format(out, "\"{}\"", text); });
}

void AddNames(std::string& out, const List<std::string_view>& names) {
  Join(out, names, ", ", [&out](std::string_view name) { out += name; });
}

void AddLoc(std::string& out, const LocDirective& loc) {
  Format(out, ".loc {} {} {}", loc.file, loc.line, loc.column);
  if (loc.function_name.empty()) return;
  Format(out, ", function_name {}", loc.function_name);
  AddOffset(out, loc.function_name_offset);
  Format(out, ", inlined_at {} {} {}", loc.inlined_file, loc.inlined_line, loc.inlined_column);
}

void AddPrototype(std::string& out, const CallPrototype& prototype) {
  Format(out, "{} : .callprototype ", prototype.name);
  AddParameters(out, prototype.returns);
  out += " _ ";
  AddParameters(out, prototype.parameters);
  out += prototype.is_noreturn ? " .noreturn;" : ";";
}

}  // namespace

void AddOperand(std::string& out, const Operand& operand) {
  const auto add = [&out](const Operand& part) { AddOperand(out, part); };
  if (operand.negated) out += '!';
  switch (operand.kind) {
    case OperandKind::kRegister:
    case OperandKind::kSpecialRegister:
      AddName(out, operand);
      break;
    case OperandKind::kSymbol:
      out += operand.name;
      AddOffset(out, operand.offset);
      break;
    case OperandKind::kInteger:
      AddInteger(out, operand.bits, operand.is_unsigned);
      break;
    case OperandKind::kFloat32:
      Format(out, "0f{:08X}", operand.bits & 0xFFFFFFFF);
      break;
    case OperandKind::kFloat64:
      Format(out, "0d{:016X}", operand.bits);
      break;
    case OperandKind::kMemory:
      out += '[';
      if (operand.base_kind == OperandKind::kInteger) {
        AddInteger(out, operand.bits, operand.is_unsigned);
      } else {
        AddName(out, operand);
      }
      AddOffset(out, operand.offset);
      for (const Operand& part : operand.parts) {
        out += ", ";
        AddOperand(out, part);
      }
      out += ']';
      break;
    case OperandKind::kSubscript:
      out += operand.name;
      out += '[';
      Join(out, operand.parts, ", ", [&](const Operand& part) {
        AddOperand(out, part);
        if (part.kind == OperandKind::kRegister) AddOffset(out, part.offset);
      });
      out += ']';
      break;
    case OperandKind::kVector:
      out += '{';
      Join(out, operand.parts, ", ", add);
      out += '}';
      break;
    case OperandKind::kPair:
      Join(out, operand.parts, "|", add);
      break;
    case OperandKind::kGroup:
      out += '(';
      Join(out, operand.parts, ", ", add);
      out += ')';
      break;
    case OperandKind::kSink:
      out += '_';
      break;
  }
}

void AddInstruction(std::string& out, const Instruction& instruction) {
  if (instruction.guard.is_present())
    Format(out, "@{}{} ", instruction.guard.is_negated ? "!" : "", instruction.guard.predicate);
  out += instruction.opcode;
  for (const std::string_view modifier : instruction.modifiers) Format(out, ".{}", modifier);
  if (!instruction.operands.empty()) out += ' ';
  Join(out, instruction.operands, ", ", [&out](const Operand& operand) { AddOperand(out, operand); });
  out += ';';
}

void AddVariable(std::string& out, const Variable& variable) {
  AddSpecifiers(out, variable);
  AddDeclarator(out, variable);
}

void AddFunctionHead(std::string& out, const Function& function) {
  if (function.linkage != Linkage::kInternal) Format(out, ".{} ", LinkageName(function.linkage));
  out += function.is_entry ? ".entry " : ".func ";
  AddAttributes(out, function.attributes);
  if (!function.returns.empty()) {
    AddParameters(out, function.returns);
    out += ' ';
  }
  out += function.name;
  AddParameters(out, function.parameters);
  for (const FunctionDirective& directive : function.directives) {
    Format(out, "\n.{}", directive.name);
    if (!directive.values.empty() || !directive.strings.empty()) out += ' ';
    Join(out, directive.values, ", ", [&out](uint64_t value) { Format(out, "{}", value); });
    AddStrings(out, directive.strings);
    if (directive.name == "pragma") out += ';';
  }
}

void AddStatementText(std::string& out, const Statement& statement) {
  struct Visitor {
    std::string& out;
    void operator()(const Instruction& node) const { AddInstruction(out, node); }
    void operator()(const Label& node) const { Format(out, "{}:", node.name); }
    void operator()(const RegisterDeclaration& node) const { AddRegisters(out, node); }
    void operator()(const VariableDeclaration& node) const { AddVariables(out, node); }
    void operator()(const LocDirective& node) const { AddLoc(out, node); }
    void operator()(const Pragma& node) const {
      out += ".pragma ";
      AddStrings(out, node.strings);
      out += ';';
    }
    void operator()(const CallPrototype& node) const { AddPrototype(out, node); }
    void operator()(const TargetList& node) const {
      Format(out, "{}: .{} ", node.name, node.is_call ? "calltargets" : "branchtargets");
      AddNames(out, node.targets);
      out += ';';
    }
    void operator()(const Block& node) const {
      out += '{';
      for (const Statement& inner : node.statements) {
        out += "\n\t";
        AddStatementText(out, inner);
      }
      out += "\n}";
    }
    void operator()(const Opaque&) const {}
  };
  std::visit(Visitor{out}, statement.node);
}

void AddItemText(std::string& out, const Item& item) {
  struct Visitor {
    std::string& out;
    void operator()(const VersionDirective& node) const { Format(out, ".version {}.{}", node.major, node.minor); }
    void operator()(const TargetDirective& node) const {
      out += ".target ";
      AddNames(out, node.targets);
    }
    void operator()(const AddressSizeDirective& node) const { Format(out, ".address_size {}", node.bits); }
    void operator()(const FileDirective& node) const {
      Format(out, ".file {} \"{}\"", node.index, node.path);
      for (const uint64_t value : node.timestamp_and_size) Format(out, ", {}", value);
    }
    void operator()(const VariableDeclaration& node) const { AddVariables(out, node); }
    void operator()(const Function& node) const {
      AddFunctionHead(out, node);
      if (!node.has_body) out += ';';
    }
    void operator()(const Alias& node) const { Format(out, ".alias {}, {};", node.name, node.target); }
    void operator()(const Pragma& node) const {
      out += ".pragma ";
      AddStrings(out, node.strings);
      out += ';';
    }
    void operator()(const Opaque&) const {}
  };
  std::visit(Visitor{out}, item.node);
}

}  // namespace tally::ptx_transforms
