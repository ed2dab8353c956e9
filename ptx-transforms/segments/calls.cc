// KernelWalk: calls, which are walked in place, and the parameter variables around them.
#include <algorithm>

#include "ptx-transforms/analysis/call_graph.h"
#include "ptx-transforms/segments/walk.h"

namespace tally::ptx_transforms {
namespace {

constexpr uint32_t kMaxCallDepth = 24;

bool Overlap(int64_t a, uint32_t a_bytes, int64_t b, uint32_t b_bytes) {
  return a < b + int64_t{b_bytes} && b < a + int64_t{a_bytes};
}

}  // namespace

// st.param into an argument of the next call, or into the function's own return value. What is not stored in one block
// with its use is not followed.
void KernelWalk::StoreParameter(Frame& frame, const Operand& place, const std::vector<const Operand*>& values,
                                uint32_t bytes) {
  Pieces& pieces = frame.pieces[place.name];
  const bool is_known = place.kind == OperandKind::kMemory && place.base_kind == OperandKind::kSymbol;
  const bool is_certain = is_known && !frame.body[frame.index].instruction->guard.is_present();
  if (!is_known) return frame.pieces.clear();
  int64_t offset = place.offset;
  for (const Operand* value : values) {
    std::erase_if(pieces, [&](const Piece& piece) { return Overlap(piece.offset, piece.bytes, offset, bytes); });
    const auto bits = static_cast<uint8_t>(bytes * 8);
    const NodeId stored = bytes > 8 ? Unknown(frame, 64) : Read(frame, *value, bits);
    if (is_certain) pieces.push_back({offset, bytes, stored});
    offset += bytes;
  }
}

NodeId KernelWalk::LoadPiece(Frame& frame, const Pieces& pieces, int64_t offset, uint32_t bytes, uint8_t bits) {
  for (const Piece& piece : pieces) {
    if (piece.offset != offset || piece.bytes != bytes || piece.value == kNoNode) continue;
    const uint8_t stored = formula_[piece.value].bits;
    if (stored != bytes * 8) break;
    return piece.value;
  }
  return Unknown(frame, bits);
}

void KernelWalk::Call(Frame& frame) {
  const Instruction& call = *frame.body[frame.index].instruction;
  std::string_view name = CalleeOf(call);
  if (const auto alias = aliases_.find(name); alias != aliases_.end()) name = alias->second;
  // Operands: [(returned)], name, [(arguments)], [prototype].
  size_t at = 0;
  const Operand* returned = nullptr;
  const Operand* passed = nullptr;
  if (at < call.operands.size() && call.operands[at].kind == OperandKind::kGroup) returned = &call.operands[at++];
  ++at;
  if (at < call.operands.size() && call.operands[at].kind == OperandKind::kGroup) passed = &call.operands[at];

  const auto found = functions_.find(name);
  const bool is_defined = found != functions_.end() && found->second->has_body;
  if (!is_defined && segments_.barriers.empty()) Barrier("call", std::string(name) + ", " + Seen(frame));
  if (is_defined && frame.depth >= kMaxCallDepth) {
    is_given_up_ = true;
    return Barrier("recursion", Seen(frame));
  }
  Pieces unknown;
  std::vector<std::vector<Pieces>> came_back;
  if (is_defined) {
    const Function& callee = *found->second;
    Frame inner(callee);
    inner.depth = frame.depth + 1;
    inner.context = frame.conditions;
    if (call.guard.is_present()) inner.context.push_back({GuardOf(frame), true});
    inner.context_mask = frame.masks[frame.block];
    for (size_t k = 0; k < callee.parameters.size(); ++k) {
      const Variable& parameter = callee.parameters[k];
      const Operand* argument = passed != nullptr && k < passed->parts.size() ? &passed->parts[k] : nullptr;
      if (argument == nullptr) continue;
      const auto bytes = static_cast<uint32_t>(ScalarTypeBytes(parameter.type));
      if (argument->kind == OperandKind::kSymbol) {
        const auto pieces = frame.pieces.find(argument->name);
        if (pieces != frame.pieces.end()) inner.arguments[parameter.name] = pieces->second;
      } else if (bytes > 0 && bytes <= 8) {
        inner.arguments[parameter.name] = {{0, bytes, Read(frame, *argument, static_cast<uint8_t>(bytes * 8))}};
      }
      if (parameter.space == StateSpace::kReg) {
        const Operand own = {.kind = OperandKind::kRegister, .name = parameter.name};
        const RegisterId reg = inner.body.size() == 0 ? kNoRegister : inner.body.RegisterOf(0, own);
        const auto piece = inner.arguments.find(parameter.name);
        if (reg != kNoRegister && piece != inner.arguments.end()) inner.registers[reg] = piece->second[0].value;
      }
    }
    WalkFunction(inner);
    if (is_given_up_) return;
    came_back = std::move(inner.returns);
  }
  if (returned == nullptr) return;
  for (size_t k = 0; k < returned->parts.size(); ++k) {
    const Operand& place = returned->parts[k];
    Pieces merged;
    if (k < came_back.size() && !came_back[k].empty()) {
      for (const Piece& piece : came_back[k][0]) {
        std::vector<NodeId> values;
        for (const Pieces& way : came_back[k])
          for (const Piece& other : way)
            if (other.offset == piece.offset && other.bytes == piece.bytes) values.push_back(other.value);
        if (values.size() == came_back[k].size()) merged.push_back({piece.offset, piece.bytes, Merged(frame, values)});
      }
    }
    if (place.kind == OperandKind::kRegister) {
      Define(frame, place, merged.empty() || merged[0].value == kNoNode ? Unknown(frame, 64) : merged[0].value);
    } else {
      frame.pieces[place.name] = call.guard.is_present() ? Pieces() : merged;
    }
  }
}

void KernelWalk::Return(Frame& frame) {
  for (size_t k = 0; k < frame.function.returns.size(); ++k) {
    const Variable& variable = frame.function.returns[k];
    Pieces pieces;
    if (variable.space == StateSpace::kReg) {
      const Operand own = {.kind = OperandKind::kRegister, .name = variable.name};
      const RegisterId reg = frame.body.RegisterOf(frame.index, own);
      if (reg != kNoRegister && frame.registers[reg] != kNoNode)
        pieces.push_back({0, static_cast<uint32_t>(ScalarTypeBytes(variable.type)), frame.registers[reg]});
    } else if (const auto found = frame.pieces.find(variable.name); found != frame.pieces.end()) {
      pieces = found->second;
    }
    frame.returns[k].push_back(std::move(pieces));
  }
}

}  // namespace tally::ptx_transforms
