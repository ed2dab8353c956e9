// KernelWalk: instructions that touch memory.
#include <algorithm>
#include <array>

#include "ptx-transforms/segments/walk.h"

namespace tally::ptx_transforms {
namespace {

// Of instructions that have an address but touch no global memory, or none that anybody could notice.
bool TouchesNoGlobalMemory(std::string_view opcode) {
  static constexpr std::array<std::string_view, 14> kOpcodes = {
      "applypriority", "createpolicy", "istypep", "ldmatrix", "mbarrier", "prefetch", "prefetchu",
      "stmatrix",      "suq",          "txq",     "wgmma",    "tcgen05",  "mma",      "clusterlaunchcontrol"};
  return std::find(kOpcodes.begin(), kOpcodes.end(), opcode) != kOpcodes.end();
}

bool HasAddress(const Instruction& instruction) {
  return std::any_of(instruction.operands.begin(), instruction.operands.end(), [](const Operand& operand) {
    return operand.kind == OperandKind::kMemory || operand.kind == OperandKind::kSubscript;
  });
}

// The first state space among the modifiers; kNone: generic.
StateSpace SpaceOfAccess(const Instruction& instruction) {
  for (const std::string_view modifier : instruction.modifiers) {
    if (modifier.starts_with("shared")) return StateSpace::kShared;
    if (const StateSpace space = StateSpaceFromName(modifier); space != StateSpace::kNone) return space;
  }
  return StateSpace::kNone;
}

uint32_t VectorWidth(const Instruction& instruction) {
  if (instruction.HasModifier("v2")) return 2;
  if (instruction.HasModifier("v4")) return 4;
  return instruction.HasModifier("v8") ? 8 : 1;
}

}  // namespace

std::string KernelWalk::Seen(const Frame& frame) const {
  const auto& entry = frame.body[frame.index];
  return MnemonicOf(*entry.instruction) + " (line " + std::to_string(entry.statement->span.position.line) + ")";
}

NodeId KernelWalk::AddressOf(Frame& frame, const Operand& memory) {
  if (memory.kind != OperandKind::kMemory) return Unknown(frame, 64);
  NodeId base = kNoNode;
  if (memory.base_kind == OperandKind::kInteger) {
    base = formula_.Constant(memory.bits, 64);
  } else if (memory.base_kind == OperandKind::kSymbol) {
    return AddressOfSymbol(frame, memory.name, memory.offset);
  } else {
    Operand reg = memory;
    reg.kind = OperandKind::kRegister;
    reg.component = 0;
    reg.negated = false;
    base = Fitted(ReadRegister(frame, reg), 64, frame.masks[frame.block]);
  }
  const NodeId offset = formula_.Constant(static_cast<uint64_t>(memory.offset), 64);
  return formula_.Make(FormulaOp::kAdd, 64, false, {base, offset});
}

void KernelWalk::Add(Frame& frame, AccessKind kind, NodeId address, uint32_t bytes, NodeId extent,
                     GlobalAccess::Object object) {
  const auto& entry = frame.body[frame.index];
  const Instruction& instruction = *entry.instruction;
  GlobalAccess& access = segments_.accesses.emplace_back();
  access.kind = kind;
  access.object = object;
  access.address = address;
  access.bytes = bytes;
  access.extent = extent;
  access.conditions = frame.conditions;
  if (instruction.guard.is_present()) access.conditions.push_back({GuardOf(frame), true});
  access.position = entry.statement->span.position;
  access.what = MnemonicOf(instruction);
}

void KernelWalk::LoadParameter(Frame& frame, const Operand& place, OperationType type) {
  const Instruction& load = *frame.body[frame.index].instruction;
  const uint32_t width = VectorWidth(load);
  const uint32_t bytes = type.bits / 8;
  for (uint32_t k = 0; k < width; ++k) {
    const Operand& to = width == 1 || load.operands[0].parts.empty() ? load.operands[0] : load.operands[0].parts[k];
    NodeId value = kNoNode;
    const bool is_named = place.kind == OperandKind::kMemory && place.base_kind == OperandKind::kSymbol;
    const NodeId address = AddressOf(frame, place);
    const FormulaNode at = formula_[address];  // a copy: formulas grow below
    if (at.op == FormulaOp::kParameterAddress && bytes <= 8) {
      value = formula_.Make(FormulaOp::kParameter, type.bits, false, {}, at.value + uint64_t{k} * bytes);
      if (at.value + uint64_t{k + 1} * bytes > segments_.parameter_bytes) value = Unknown(frame, type.bits);
    } else if (is_named && bytes <= 8) {
      const auto pieces = frame.pieces.find(place.name);
      const auto arguments = frame.arguments.find(place.name);
      const int64_t offset = place.offset + int64_t{k} * bytes;
      if (pieces != frame.pieces.end()) {
        value = LoadPiece(frame, pieces->second, offset, bytes, type.bits);
      } else if (arguments != frame.arguments.end()) {
        value = LoadPiece(frame, arguments->second, offset, bytes, type.bits);
      }
    }
    if (value == kNoNode) value = formula_.Load(64, LoadSpace::kGeneric, address, frame.masks[frame.block]);
    value = Widened(frame, to, value, type.is_signed);
    if (to.kind == OperandKind::kVector && to.parts.size() == 1) {
      Define(frame, to.parts[0], value);
    } else {
      Define(frame, to, value);
    }
  }
}

void KernelWalk::Load(Frame& frame) {
  const Instruction& load = *frame.body[frame.index].instruction;
  if (load.operands.size() < 2) return;
  const StateSpace space = SpaceOfAccess(load);
  const OperationType type = TypeOf(load);
  if (space == StateSpace::kParam) return LoadParameter(frame, load.operands[1], type);
  const NodeId address = AddressOf(frame, load.operands[1]);
  if (space == StateSpace::kNone && formula_[address].op == FormulaOp::kParameterAddress)
    return LoadParameter(frame, load.operands[1], type);
  LoadSpace from = LoadSpace::kGeneric;
  if (space == StateSpace::kGlobal) from = LoadSpace::kGlobal;
  if (space == StateSpace::kConst) from = LoadSpace::kConstant;
  if (space == StateSpace::kShared) from = LoadSpace::kShared;
  if (space == StateSpace::kLocal) from = LoadSpace::kLocal;
  const uint32_t bytes = type.bits == 0 ? 32 : type.bits / 8 * VectorWidth(load);
  if (space == StateSpace::kGlobal || space == StateSpace::kConst || space == StateSpace::kNone)
    Add(frame, AccessKind::kRead, address, bytes);
  const auto define = [&](const Operand& to) {
    NodeId value = formula_.Load(type.bits == 0 ? 64 : type.bits, from, address, frame.masks[frame.block]);
    Define(frame, to, Widened(frame, to, value, type.is_signed));
  };
  const Operand& to = load.operands[0];
  if (to.kind == OperandKind::kVector) {
    for (const Operand& part : to.parts) define(part);
  } else {
    define(to);
  }
}

void KernelWalk::Store(Frame& frame) {
  const Instruction& store = *frame.body[frame.index].instruction;
  if (store.operands.size() < 2) return;
  const StateSpace space = SpaceOfAccess(store);
  const OperationType type = TypeOf(store);
  std::vector<const Operand*> values;
  if (store.operands[1].kind == OperandKind::kVector) {
    for (const Operand& part : store.operands[1].parts) values.push_back(&part);
  } else {
    values.push_back(&store.operands[1]);
  }
  if (space == StateSpace::kParam) return StoreParameter(frame, store.operands[0], values, type.bits / 8);
  const uint32_t bytes = type.bits == 0 ? 32 : type.bits / 8 * VectorWidth(store);
  if (space == StateSpace::kLocal || space == StateSpace::kNone)
    for (const Operand* value : values)
      local_stores_.push_back({Read(frame, *value, type.bits == 0 || type.bits > 64 ? 64 : type.bits),
                               space == StateSpace::kLocal ? kNoNode : AddressOf(frame, store.operands[0])});
  if (space == StateSpace::kGlobal || space == StateSpace::kNone)
    Add(frame, AccessKind::kWrite, AddressOf(frame, store.operands[0]), bytes);
}

// cp.async, cp.async.bulk, cp.reduce.async.bulk.
void KernelWalk::CopyAsync(Frame& frame) {
  const Instruction& copy = *frame.body[frame.index].instruction;
  if (copy.HasModifier("tensor")) return CopyTensor(frame);
  if (copy.operands.size() < 2 || copy.HasModifier("prefetch")) return;
  std::vector<StateSpace> spaces;  // of the destination, of the source
  for (const std::string_view modifier : copy.modifiers) {
    if (modifier.starts_with("shared")) spaces.push_back(StateSpace::kShared);
    if (modifier == "global") spaces.push_back(StateSpace::kGlobal);
  }
  const NodeId size = copy.operands.size() > 2 ? Read(frame, copy.operands[2], 32) : Unknown(frame, 32);
  const bool is_fixed = formula_.IsConstant(size) && formula_[size].value <= 1u << 20;
  const uint32_t bytes = is_fixed ? static_cast<uint32_t>(formula_[size].value) : 0;
  if (spaces.size() < 2) Barrier("unknown-access", Seen(frame));
  for (size_t k = 0; k < spaces.size() && k < 2; ++k) {
    if (spaces[k] != StateSpace::kGlobal) continue;
    const AccessKind kind = k == 1                       ? AccessKind::kRead
                            : copy.HasModifier("reduce") ? AccessKind::kAtomic
                                                         : AccessKind::kWrite;
    Add(frame, kind, AddressOf(frame, copy.operands[k]), bytes, is_fixed ? kNoNode : size);
  }
}

// cp.async.bulk.tensor and its kin: where the tensor lies, only its map knows.
void KernelWalk::CopyTensor(Frame& frame) {
  const Instruction& copy = *frame.body[frame.index].instruction;
  if (copy.HasModifier("prefetch")) return;
  // The map is the address with coordinates; in front of it stands the shared destination, if the tensor is read.
  for (size_t k = 0; k < copy.operands.size(); ++k) {
    const Operand& operand = copy.operands[k];
    if (operand.kind != OperandKind::kMemory || operand.parts.empty()) continue;
    const AccessKind kind = k > 0                        ? AccessKind::kRead
                            : copy.HasModifier("reduce") ? AccessKind::kAtomic
                                                         : AccessKind::kWrite;
    return Add(frame, kind, AddressOf(frame, operand), 0, kNoNode, GlobalAccess::Object::kTensorMap);
  }
  Barrier("unknown-access", Seen(frame));
}

// True if there is nothing more to do for the instruction.
bool KernelWalk::WalkMemory(Frame& frame) {
  const Instruction& instruction = *frame.body[frame.index].instruction;
  const std::string_view opcode = instruction.opcode;
  const StateSpace space = SpaceOfAccess(instruction);
  const auto has = [&](std::string_view modifier) { return instruction.HasModifier(modifier); };
  const bool is_own = space == StateSpace::kShared || space == StateSpace::kLocal || space == StateSpace::kParam;
  if (has("sys") || has("mmio")) Barrier("system-scope", Seen(frame));
  if (has("volatile") && !is_own) Barrier("volatile", Seen(frame));
  if (opcode == "brkpt") Barrier("trap", Seen(frame));
  if (opcode == "multimem" || opcode == "tensormap") Barrier("unknown-access", Seen(frame));

  if (opcode == "ld" || opcode == "ldu") {
    Load(frame);
    return true;
  }
  if (opcode == "st" && has("async") && !has("global")) return true;
  if (opcode == "st") {
    if (!has("bulk")) Store(frame);
    return true;
  }
  if (opcode == "atom" || opcode == "red") {
    const size_t at = opcode == "atom" ? 1 : 0;
    if (opcode == "red" && has("async") && !has("global")) return true;
    if (instruction.operands.size() <= at) return false;
    if (!is_own) {
      const OperationType type = TypeOf(instruction);
      const uint32_t bytes = type.bits == 0 ? 32 : type.bits / 8 * VectorWidth(instruction);
      Add(frame, AccessKind::kAtomic, AddressOf(frame, instruction.operands[at]), bytes);
    }
    // What a generic one writes may be a pointer in local memory, and what it finds is as good as loaded.
    for (size_t k = at + 1; k < instruction.operands.size() && space == StateSpace::kNone; ++k)
      local_stores_.push_back({Read(frame, instruction.operands[k], 64), AddressOf(frame, instruction.operands[at])});
    if (opcode == "atom") DefineOpaque(frame, instruction.operands[0], {Unknown(frame, 64)});
    return true;
  }
  if (opcode == "cp") {
    if (HasAddress(instruction)) CopyAsync(frame);
    return true;
  }
  if (opcode == "discard") {
    Add(frame, AccessKind::kWrite, AddressOf(frame, instruction.operands[0]), 128);
    return true;
  }
  if (opcode == "tex" || opcode == "tld4" || opcode == "suld" || opcode == "sust" || opcode == "sured") {
    for (const Operand& operand : instruction.operands) {
      if (operand.kind != OperandKind::kMemory) continue;
      const AccessKind kind = opcode == "sust"    ? AccessKind::kWrite
                              : opcode == "sured" ? AccessKind::kAtomic
                                                  : AccessKind::kRead;
      Operand handle = operand;
      handle.parts = {};
      const NodeId address = AddressOf(frame, handle);
      Add(frame, kind, address, 0, kNoNode, GlobalAccess::Object::kTexture);
      break;
    }
    if (opcode != "sust" && opcode != "sured") DefineOpaque(frame, instruction.operands[0], {});
    return true;
  }
  if (opcode == "wmma" && HasAddress(instruction)) {
    for (size_t k = 0; k < instruction.operands.size(); ++k) {
      if (instruction.operands[k].kind != OperandKind::kMemory || is_own) continue;
      Add(frame, k == 0 ? AccessKind::kWrite : AccessKind::kRead, AddressOf(frame, instruction.operands[k]), 0,
          Unknown(frame, 64));
    }
    if (has("load")) DefineOpaque(frame, instruction.operands[0], {});
    return true;
  }
  if (HasAddress(instruction) && !is_own && !TouchesNoGlobalMemory(opcode)) Barrier("unknown-access", Seen(frame));
  return false;
}

}  // namespace tally::ptx_transforms
