// Calls: direct, indirect, and of what the driver provides.

#include <cstring>

#include "sim-driver/engine/builtin.h"
#include "sim-driver/engine/frames.h"
#include "sim-driver/engine/grid.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {
namespace {

// list: offset and size in the caller's parameter area of x return values, then of y arguments.
void Enter(Warp& w, const Instruction& i, const FunctionCode& callee) {
  if (!callee.unsupported.empty() || callee.instructions.empty())
    return RaiseFault(w, i, kLanes, kFaultNotSupported, Format("function {}: {}", callee.name, callee.unsupported));
  if (callee.parameters.size() != i.y || callee.returns.size() < i.x)
    return RaiseFault(w, i, kLanes, kFaultInvalidPc, Format("function {} takes other arguments", callee.name));
  Frame* caller = w.frame;
  Frame* frame = EnterFrame(w, callee, caller, w.mask);
  if (frame == nullptr)
    return RaiseFault(w, i, kLanes, kFaultHardwareStackError,
                      Format("stack overflow calling {} at depth {}", callee.name, caller->depth + 1));
  const uint32_t* arguments = i.list + 2 * i.x;
  for (uint32_t k = 0; k < i.y; ++k) {
    uint32_t bytes = std::min(arguments[2 * k + 1], callee.parameters[k].size_bytes);
    for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
      auto lane = static_cast<size_t>(std::countr_zero(rest));
      std::memcpy(frame->parameters + lane * callee.parameter_stride_bytes + callee.parameters[k].offset_bytes,
                  caller->parameters + lane * caller->function->parameter_stride_bytes + arguments[2 * k], bytes);
    }
  }
  Record* record = NewRecord(w);
  record->expected = w.mask;
  record->pc = w.pc;
  record->frame = caller;
  record->parent = w.record;
  frame->call_record = record;
  frame->call = &i;
  w.record = record;
  w.SetFrame(frame);
  w.pc = callee.instructions.data();
}

void OpCall(Warp& w, const Instruction& i) {
  Enter(w, i, *w.block->cluster->grid->code.functions[static_cast<size_t>(i.imm)]);
}

void OpCallIndirect(Warp& w, const Instruction& i) {  // a = function address
  const uint64_t* addresses = Source<uint64_t>(w, i.a);
  auto first = static_cast<uint32_t>(std::countr_zero(w.mask));
  uint64_t address = addresses[first];
  uint32_t same = 0;
  for (uint32_t rest = w.mask; rest != 0; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    if (addresses[lane] == address) same |= 1u << lane;
  }
  if (same != w.mask) SplitWarp(w, w.mask & ~same, &i, reinterpret_cast<const Instruction*>(i.imm));
  const auto& functions = w.block->cluster->grid->code.functions;
  uint64_t number = (address & ~kWindowMask) / 16;
  if ((address & kWindowMask) != kFunctionWindow || address % 16 != 0 || number == 0 || number > functions.size() ||
      functions[number - 1]->is_kernel)
    return RaiseFault(w, i, first, kFaultInvalidPc, Format("call of {:#x}, which is not a function", address));
  Enter(w, i, *functions[number - 1]);
}

struct CallParts {
  const ptx::Operand* returns = nullptr;
  const ptx::Operand* target = nullptr;
  const ptx::Operand* arguments = nullptr;
  const ptx::Operand* prototype = nullptr;
};

bool SplitCall(Lowering& l, CallParts* parts) {
  size_t next = 0;
  if (l.num_operands() > 0 && l.operand(0).kind == OperandKind::kGroup) parts->returns = &l.operand(next++);
  parts->target = &l.operand(next++);
  if (next < l.num_operands() && l.operand(next).kind == OperandKind::kGroup) parts->arguments = &l.operand(next++);
  if (next < l.num_operands()) parts->prototype = &l.operand(next++);
  return next == l.num_operands() || l.Invalid("too many operands of call");
}

// Return values that go to registers: loaded after the call.
struct RegisterReturn {
  const ptx::Operand* operand;
  uint32_t offset;
  uint32_t width;
};

// Appends offset and size of the parameter-area slot of each operand of `group`; `formals` give types of registers.
bool TakeSlots(Lowering& l, const ptx::Operand* group, const ptx::List<ptx::Variable>& formals, bool is_return,
               std::vector<uint32_t>* numbers, std::vector<RegisterReturn>* register_returns) {
  if (group == nullptr) return true;
  for (size_t k = 0; k < group->parts.size(); ++k) {
    const ptx::Operand& operand = group->parts[k];
    auto slot = operand.kind == OperandKind::kSymbol || operand.kind == OperandKind::kRegister
                    ? l.FindParameter(operand.name)
                    : std::nullopt;
    if (slot) {
      if (slot->is_kernel) return l.Unsupported("passing a kernel parameter on");
      numbers->push_back(slot->offset_bytes);
      numbers->push_back(slot->size_bytes);
      continue;
    }
    ScalarType type = k < formals.size() ? formals[k].type : ScalarType::kB32;
    uint32_t width = TypeBytes(type);
    if (width != 2 && width != 4 && width != 8) return l.Unsupported("a call with such an operand");
    uint32_t offset = l.AllocateParameter(8, 8);
    numbers->push_back(offset);
    numbers->push_back(std::max(width, 4u));
    if (is_return) {
      register_returns->push_back({&operand, offset, width});
    } else {
      EmitFrameParameterStore(l, l.Use(operand, type), offset, width);
    }
  }
  return true;
}

bool DecodeCall(Lowering& l) {
  CallParts parts;
  if (!SplitCall(l, &parts)) return false;
  bool is_indirect = parts.target->kind == OperandKind::kRegister || l.IsRegister(parts.target->name);
  Symbol symbol;
  ptx::List<ptx::Variable> formal_returns;
  ptx::List<ptx::Variable> formal_parameters;
  if (!is_indirect) {
    symbol = l.FindSymbol(parts.target->name);
    if (symbol.kind != Symbol::Kind::kFunction || symbol.declaration == nullptr)
      return l.Invalid(Format("call of {}, which is not declared", parts.target->name));
    formal_returns = symbol.declaration->returns;
    formal_parameters = symbol.declaration->parameters;
  } else if (parts.prototype != nullptr) {
    if (const ptx::CallPrototype* prototype = l.FindPrototype(parts.prototype->name)) {
      formal_returns = prototype->returns;
      formal_parameters = prototype->parameters;
    }
  }
  std::vector<uint32_t> numbers;
  std::vector<RegisterReturn> register_returns;
  if (!TakeSlots(l, parts.returns, formal_returns, true, &numbers, &register_returns)) return false;
  auto num_returns = static_cast<uint32_t>(numbers.size() / 2);
  if (!TakeSlots(l, parts.arguments, formal_parameters, false, &numbers, &register_returns)) return false;
  auto num_arguments = static_cast<uint32_t>(numbers.size() / 2) - num_returns;
  LoweredInstruction* call = nullptr;
  if (is_indirect) {
    VirtualOperand target = l.Use(*parts.target, ScalarType::kU64);
    call = &l.Emit(&OpCallIndirect, kNoOperand, target);
    call->rejoins_next = true;
  } else if (!symbol.declaration->has_body) {
    const Builtin* builtin = FindBuiltin(parts.target->name);
    if (builtin == nullptr) return l.Unsupported(Format("extern function {}", parts.target->name));
    if (num_arguments != builtin->num_arguments) return l.Invalid("this function takes other arguments");
    if (builtin->prints) l.uses_printf = true;
    call = &l.Emit(builtin->op);
  } else {
    if (symbol.declaration->is_entry) return l.Invalid("call of a kernel");
    if (num_returns != formal_returns.size() || num_arguments != formal_parameters.size())
      return l.Invalid("this function takes other arguments");
    call = &l.Emit(&OpCall);
    call->i.imm = symbol.index;
  }
  call->i.x = num_returns;
  call->i.y = num_arguments;
  if (numbers.empty()) numbers.push_back(0);
  call->numbers = std::move(numbers);
  for (const RegisterReturn& r : register_returns) {
    ScalarType type = r.width == 2 ? ScalarType::kB16 : r.width == 4 ? ScalarType::kB32 : ScalarType::kB64;
    EmitFrameParameterLoad(l, l.Define(*r.operand, type), r.offset, r.width);
  }
  return true;
}

}  // namespace

void AddCallOpcodes(OpcodeTable& table) { table["call"] = {&DecodeCall, true}; }

}  // namespace tally::sim_driver
