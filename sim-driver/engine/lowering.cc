// Registers, constants, variables, addresses and what is emitted; statements.cc walks the function.
#include "sim-driver/engine/lowering.h"

#include <charconv>

#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {
namespace {

// %r12 -> {"%r", 12}; nothing where there is no number at the end.
std::optional<std::pair<std::string_view, uint32_t>> SplitNumber(std::string_view name) {
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  if (digits == name.size() || digits == 0) return std::nullopt;
  uint32_t number = 0;
  auto [end, error] = std::from_chars(name.data() + digits, name.data() + name.size(), number);
  if (error != std::errc()) return std::nullopt;
  return std::pair(name.substr(0, digits), number);
}

uint32_t Lowest(uint64_t bits) { return static_cast<uint32_t>(bits); }

}  // namespace

uint32_t TypeBytes(ScalarType type) {
  if (type == ScalarType::kPred) return kPredicateClass;
  size_t bytes = ptx::ScalarTypeBytes(type);
  return bytes == 1 ? 2 : static_cast<uint32_t>(bytes);
}
uint32_t MemoryBytes(ScalarType type) { return static_cast<uint32_t>(ptx::ScalarTypeBytes(type)); }
bool IsFloat(ScalarType type) { return type >= ScalarType::kF16 && type <= ScalarType::kF64; }
bool IsSigned(ScalarType type) { return type >= ScalarType::kS8 && type <= ScalarType::kS64; }

uint32_t ConstantPool::Offset(uint32_t bytes, uint64_t bits) {
  auto [found, is_new] = offsets_.try_emplace({bytes, bits}, static_cast<uint32_t>(words_.size() * 8));
  if (!is_new) return found->second;
  size_t start = words_.size();
  words_.resize(start + (bytes == 0 ? 8 : bytes * kLanes / 8));  // a predicate takes a whole cache line, for alignment
  for (uint32_t lane = 0; lane < (bytes == 0 ? 1 : kLanes); ++lane) {
    uint32_t width = bytes == 0 ? 4 : std::min(bytes, 8u);
    std::memcpy(reinterpret_cast<std::byte*>(words_.data() + start) + lane * std::max(bytes, 4u * (bytes == 0)), &bits,
                width);
  }
  return found->second;
}

std::vector<uint64_t> ConstantPool::Take() {
  // Room to align the start to 64 bytes (ProgramCode::constant_base).
  std::vector<uint64_t> words(words_.size() + 8);
  auto address = reinterpret_cast<uintptr_t>(words.data());
  size_t shift = (((address + 63) & ~uintptr_t{63}) - address) / 8;
  std::copy(words_.begin(), words_.end(), words.begin() + static_cast<ptrdiff_t>(shift));
  return words;
}

Lowering::Lowering(const ptx::Module& module, uint32_t text_index, const ptx::Function& function,
                   const SymbolTable& symbols, ConstantPool& constants, bool is_kernel)
    : module_(module),
      text_index_(text_index),
      function_(function),
      symbols_(symbols),
      constants_(constants),
      is_kernel_(is_kernel) {
  classes.push_back(4);  // virtual register 0 is never used
}

bool Lowering::Invalid(std::string_view why) {
  if (invalid.empty()) {
    std::string where =
        sources.empty() ? Format("function {}", function_.name) : Format("ptx:{}:1", sources[source_].line);
    std::string text;
    if (!sources.empty())
      text = Format(" in '{}'", module_.Text(ptx::TextRange{sources[source_].begin, sources[source_].end}));
    invalid = Format("{}: {}{}", where, why, text);
  }
  return false;
}

bool Lowering::Unsupported(std::string_view why) {
  if (unsupported.empty()) {
    unsupported = Format("{} (PTX line {})", why, sources.empty() ? 0 : sources[source_].line);
  }
  return false;
}

std::string_view Lowering::Modifier(size_t index) const {
  return index < instruction_->modifiers.size() ? instruction_->modifiers[index] : std::string_view();
}

const ptx::Operand& Lowering::operand(size_t index) {
  static const ptx::Operand kMissing;
  if (index < instruction_->operands.size()) return instruction_->operands[index];
  Invalid("operand missing");
  return kMissing;
}

ScalarType Lowering::Type(size_t n) const {
  for (std::string_view modifier : instruction_->modifiers) {
    ScalarType type = ptx::ScalarTypeFromName(modifier);
    if (type != ScalarType::kNone && n-- == 0) return type;
  }
  return ScalarType::kNone;
}

// ---------------------------------------------------------------- registers and constants

uint32_t Lowering::NewRegister(uint32_t width_bytes) {
  if (classes.size() >= kMaxRegisters) {
    Invalid("too many registers");
    return 0;
  }
  classes.push_back(static_cast<uint8_t>(width_bytes));
  return static_cast<uint32_t>(classes.size() - 1);
}

VirtualOperand Lowering::Temporary(uint32_t width_bytes) { return kRegisterTag | NewRegister(width_bytes); }
VirtualOperand Lowering::Constant(uint32_t width_bytes, uint64_t bits) {
  if (width_bytes < 8 && width_bytes > 0) bits &= (uint64_t{1} << (8 * width_bytes)) - 1;
  return kConstantTag | constants_.Offset(width_bytes, bits);
}
VirtualOperand Lowering::CarryFlag() {
  if (carry_ == kNoOperand) carry_ = Temporary(kPredicateClass);
  return carry_;
}

std::optional<uint32_t> Lowering::FindRegister(std::string_view name) {
  auto number = SplitNumber(name);
  for (size_t depth = scopes_.size(); depth-- > 0;) {
    Scope& scope = scopes_[depth];
    if (auto found = scope.registers.find(name); found != scope.registers.end()) return found->second;
    if (!number) continue;
    // %rd1 may be number 1 of %rd or, oddly, 1 of "%r" "d"; also %r10 may be range "%r1" number 0: longest prefix
    // first.
    for (std::string_view prefix = number->first;;) {
      auto range = scope.ranges.find(prefix);
      if (range != scope.ranges.end()) {
        auto rest = name.substr(prefix.size());
        uint32_t index = 0;
        std::from_chars(rest.data(), rest.data() + rest.size(), index);
        if (index < range->second.count && (rest.size() == 1 || rest[0] != '0')) return range->second.first + index;
      }
      if (prefix.size() + 1 >= name.size()) break;
      prefix = name.substr(0, prefix.size() + 1);
    }
  }
  return std::nullopt;
}

bool Lowering::IsRegister(std::string_view name) { return FindRegister(name).has_value(); }

VirtualOperand Lowering::Immediate(const ptx::Operand& operand, ScalarType type, uint32_t width_bytes) {
  uint64_t bits = operand.bits;
  if (operand.kind == OperandKind::kInteger) {
    if (type == ScalarType::kF32) return Constant(4, std::bit_cast<uint32_t>(static_cast<float>(int64_t(bits))));
    if (type == ScalarType::kF64) return Constant(8, std::bit_cast<uint64_t>(static_cast<double>(int64_t(bits))));
  } else if (operand.kind == OperandKind::kFloat32) {
    if (type == ScalarType::kF64) bits = std::bit_cast<uint64_t>(double{std::bit_cast<float>(Lowest(bits))});
  } else if (type == ScalarType::kF32) {
    bits = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
  }
  return Constant(width_bytes, bits);
}

VirtualOperand Lowering::UseWide(const ptx::Operand& operand, ScalarType type, uint32_t* width) {
  uint32_t natural = TypeBytes(type);
  *width = natural;
  switch (operand.kind) {
    case OperandKind::kRegister: {
      auto found = FindRegister(operand.name);
      if (!found) {
        Invalid(Format("unknown register {}", operand.name));
        return Constant(natural, 0);
      }
      if (operand.component != 0) {
        Unsupported("vector registers");
        return Constant(natural, 0);
      }
      *width = classes[*found];
      if (operand.negated) {
        if (*width != kPredicateClass) Invalid("'!' before a register that is no predicate");
        VirtualOperand negated = Temporary(kPredicateClass);
        Emit(NotPredicateOp(), negated, kRegisterTag | *found);
        return negated;
      }
      return kRegisterTag | *found;
    }
    case OperandKind::kSpecialRegister:
      return SpecialRegister(operand, natural);
    case OperandKind::kInteger:
    case OperandKind::kFloat32:
    case OperandKind::kFloat64:
      if (natural == kPredicateClass) return Constant(kPredicateClass, operand.bits != 0 ? kFullMask : 0);
      return Immediate(operand, type, natural);
    case OperandKind::kSymbol:
      if (natural != 4 && natural != 8) break;
      if (auto found = FindRegister(operand.name)) {  // a register named without %
        *width = classes[*found];
        return kRegisterTag | *found;
      }
      return SymbolAddress(operand.name, operand.offset, natural);
    default:
      break;
  }
  Invalid("this operand cannot be read here");
  return Constant(natural, 0);
}

VirtualOperand Lowering::Use(const ptx::Operand& operand, ScalarType type) {
  uint32_t width = 0;
  VirtualOperand result = UseWide(operand, type, &width);
  if (width != TypeBytes(type)) {
    Invalid(Format("{} is not as wide as .{}", operand.name, ptx::ScalarTypeName(type)));
    return Constant(TypeBytes(type), 0);
  }
  return result;
}

VirtualOperand Lowering::UsePredicate(const ptx::Operand& operand) { return Use(operand, ScalarType::kPred); }
VirtualOperand Lowering::DefinePredicate(const ptx::Operand& operand) { return Define(operand, ScalarType::kPred); }

VirtualOperand Lowering::DefineWide(const ptx::Operand& operand, ScalarType type, uint32_t* width) {
  *width = TypeBytes(type);
  if (operand.kind == OperandKind::kSink) return Temporary(*width);
  if (operand.kind == OperandKind::kRegister || operand.kind == OperandKind::kSymbol) {
    if (auto found = FindRegister(operand.name)) {
      *width = classes[*found];
      return kRegisterTag | *found;
    }
  }
  Invalid("this operand cannot be written");
  return Temporary(*width);
}

VirtualOperand Lowering::Define(const ptx::Operand& operand, ScalarType type) {
  uint32_t width = 0;
  VirtualOperand result = DefineWide(operand, type, &width);
  if (width != TypeBytes(type)) {
    Invalid(Format("{} is not as wide as .{}", operand.name, ptx::ScalarTypeName(type)));
    return Temporary(TypeBytes(type));
  }
  return result;
}

VirtualOperand Lowering::SpecialRegister(const ptx::Operand& operand, uint32_t width_bytes) {
  return EmitSpecialRegister(*this, operand.name, operand.component, width_bytes);
}

// ---------------------------------------------------------------- variables and addresses

uint32_t Lowering::AllocateLocal(uint64_t bytes, uint32_t align) {
  align = std::max(1u, std::min(align, 128u));
  uint64_t start = (uint64_t{local_bytes} + align - 1) / align * align;
  if (bytes > kMaxAreaBytes || start + bytes > kMaxAreaBytes) {
    Invalid("too much local memory");
    return 0;
  }
  local_bytes = static_cast<uint32_t>(start + bytes);
  return static_cast<uint32_t>(start);
}

uint32_t Lowering::AllocateParameter(uint64_t bytes, uint32_t align) {
  align = std::max(1u, std::min(align, 128u));
  uint64_t start = (uint64_t{parameter_top_} + align - 1) / align * align;
  if (bytes > kMaxAreaBytes || start + bytes > kMaxAreaBytes) {
    Invalid("too many parameter bytes");
    return 0;
  }
  parameter_top_ = static_cast<uint32_t>(start + bytes);
  parameter_bytes = std::max(parameter_bytes, parameter_top_);
  return static_cast<uint32_t>(start);
}

const Lowering::Variable* Lowering::FindVariable(std::string_view name) const {
  for (size_t depth = scopes_.size(); depth-- > 0;) {
    auto found = scopes_[depth].variables.find(name);
    if (found != scopes_[depth].variables.end()) return &found->second;
  }
  return nullptr;
}

std::optional<Lowering::ParameterSlot> Lowering::FindParameter(std::string_view name) const {
  if (const Variable* variable = FindVariable(name); variable && variable->space == StateSpace::kParam)
    return ParameterSlot{variable->offset, variable->size, false};
  auto found = kernel_parameters_.find(name);
  if (found == kernel_parameters_.end()) return std::nullopt;
  return found->second;
}

const ptx::CallPrototype* Lowering::FindPrototype(std::string_view name) const {
  for (size_t depth = scopes_.size(); depth-- > 0;) {
    auto found = scopes_[depth].prototypes.find(name);
    if (found != scopes_[depth].prototypes.end()) return found->second;
  }
  return nullptr;
}

const ptx::TargetList* Lowering::FindTargets(std::string_view name) const {
  for (size_t depth = scopes_.size(); depth-- > 0;) {
    auto found = scopes_[depth].targets.find(name);
    if (found != scopes_[depth].targets.end()) return found->second;
  }
  return nullptr;
}

VirtualOperand Lowering::SymbolAddress(std::string_view name, int64_t offset, uint32_t width_bytes) {
  auto narrow = [&](VirtualOperand wide) {
    if (width_bytes == 8) return wide;
    VirtualOperand low = Temporary(4);
    Emit(ExtendOp(4, 8, ScalarType::kU32), low, wide);
    return low;
  };
  auto emit_address = [&](OpFunction op, uint32_t index) {
    VirtualOperand address = Temporary(8);
    Instruction& i = Emit(op, address).i;
    i.x = index;
    i.imm = offset;
    return narrow(address);
  };
  if (const Variable* variable = FindVariable(name)) {
    if (variable->space == StateSpace::kLocal) {
      offset += variable->offset;
      return emit_address(&OpLocalAddress, 0);
    }
    if (variable->space == StateSpace::kParam) return Constant(width_bytes, uint64_t{variable->offset} + offset);
    if (variable->shared) return Constant(width_bytes, uint64_t{symbols_.SharedOffset(*variable->shared)} + offset);
    return emit_address(&OpDynamicSharedAddress, 0);
  }
  if (auto found = kernel_parameters_.find(name); found != kernel_parameters_.end())
    return Constant(width_bytes, uint64_t{found->second.offset_bytes} + offset);
  Symbol symbol = symbols_.Find(name);
  switch (symbol.kind) {
    case Symbol::Kind::kGlobal:
      return emit_address(&OpVariableAddress, symbol.index);
    case Symbol::Kind::kShared:
      return Constant(width_bytes, uint64_t{symbols_.SharedOffset(*symbol.shared)} + offset);
    case Symbol::Kind::kDynamicShared:
      return emit_address(&OpDynamicSharedAddress, 0);
    case Symbol::Kind::kFunction:
      return Constant(width_bytes, kFunctionWindow | (uint64_t{symbol.index} + 1) * 16);
    case Symbol::Kind::kAbsent:
      break;
  }
  Invalid(Format("unknown name {}", name));
  return Constant(width_bytes, 0);
}

Lowering::Address Lowering::AddressOf(const ptx::Operand& memory, StateSpace space) {
  Address address;
  address.offset = memory.offset;
  if (memory.kind != OperandKind::kMemory) {
    Invalid("expected an address in brackets");
    address.base = Constant(8, 0);
    return address;
  }
  if (memory.base_kind == OperandKind::kInteger) {
    address.base = Constant(8, memory.bits);
  } else if (auto found = FindRegister(memory.name)) {
    address.base = kRegisterTag | *found;
    if (classes[*found] != 4 && classes[*found] != 8) Invalid("an address has 32 or 64 bits");
    address.is_wide = classes[*found] == 8;
  } else if (auto slot = FindParameter(memory.name)) {
    address.offset += slot->offset_bytes;
    address.is_kernel_parameter = slot->is_kernel;
    address.is_frame_parameter = !slot->is_kernel;
    return address;
  } else {
    address.base = SymbolAddress(memory.name, memory.offset, 8);
    address.offset = 0;
  }
  if (space == StateSpace::kParam) {
    address.is_kernel_parameter = is_kernel_;
    address.is_frame_parameter = !is_kernel_;
  }
  return address;
}

VirtualOperand Lowering::WideAddress(const Address& address) {
  if (address.base == kNoOperand) return Constant(8, 0);
  if (address.is_wide) return address.base;
  VirtualOperand wide = Temporary(8);
  Emit(ExtendOp(8, 4, ScalarType::kU32), wide, address.base);
  return wide;
}

// ---------------------------------------------------------------- output

LoweredInstruction& Lowering::Emit(OpFunction op, VirtualOperand d, VirtualOperand a, VirtualOperand b,
                                   VirtualOperand c) {
  LoweredInstruction& lowered = instructions.emplace_back();
  lowered.i.op = op;
  lowered.i.d = d;
  lowered.i.a = a;
  lowered.i.b = b;
  lowered.i.c = c;
  lowered.source = source_;
  return lowered;
}

int32_t Lowering::NewLabel() {
  label_positions.push_back(-1);
  return static_cast<int32_t>(label_positions.size() - 1);
}

void Lowering::PlaceLabel(int32_t label) {
  if (label_positions[label] >= 0) Invalid("a label is defined twice");
  label_positions[label] = static_cast<int32_t>(instructions.size());
}

int32_t Lowering::LabelNamed(std::string_view name) {
  for (size_t depth = scopes_.size(); depth-- > 0;) {
    auto found = scopes_[depth].labels.find(name);
    if (found != scopes_[depth].labels.end()) return found->second;
  }
  Invalid(Format("unknown label {}", name));
  return -1;
}

void Lowering::EmitBranch(int32_t label, VirtualOperand predicate, bool negated) {
  LoweredInstruction& branch = Emit(predicate == kNoOperand ? &OpBranch : &OpBranchConditional, kNoOperand, predicate);
  branch.label = label;
  branch.i.x = negated ? kFullMask : 0;
  branch.ends_block = predicate == kNoOperand;
}

}  // namespace tally::sim_driver
