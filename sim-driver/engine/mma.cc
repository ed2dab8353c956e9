// Products of a warp: mma.sync of f16, bf16 and tf32.

#include "sim-driver/engine/matrix.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/warp_sync.h"

namespace tally::sim_driver {
namespace {

constexpr uint32_t kHalfSums = 1;
constexpr uint32_t kElementShift = 8;

// The right operand of 16-bit elements: lane 4*g + t holds k = 2t, 2t+1 (and 8 further on) of column g.
void SetRight(MatrixProduct& product, const Warp& w, const uint32_t* registers, MatrixElement element) {
  for (uint32_t part = 0; part < product.depth / 8; ++part) {
    const uint32_t* values = Source<uint32_t>(w, registers[part]);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t k = ColumnOfLane(lane) + 8 * part;
      product.right[k][RowOfLane(lane)] = ElementValue(element, static_cast<uint16_t>(values[lane]));
      product.right[k + 1][RowOfLane(lane)] = ElementValue(element, static_cast<uint16_t>(values[lane] >> 16));
    }
  }
}

// Of tf32, one element in a register: rows g, g+8 at k = t, then at k = t+4; the right one at k = t, t+4 of column g.
void SetTf32(MatrixProduct& product, const Warp& w, const uint32_t* left, const uint32_t* right) {
  for (uint32_t part = 0; part < product.depth / 2; ++part) {
    const uint32_t* values = Source<uint32_t>(w, left[part]);
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      product.left[lane / 4 + part % 2 * 8][lane % 4 + part / 2 * 4] = Tf32Value(values[lane]);
  }
  for (uint32_t part = 0; part < product.depth / 4; ++part) {
    const uint32_t* values = Source<uint32_t>(w, right[part]);
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      product.right[lane % 4 + 4 * part][lane / 4] = Tf32Value(values[lane]);
  }
}

// list = d, c, a, b; x = depth, y = kHalfSums | MatrixElement << kElementShift.
void OpMma(Warp& w, const Instruction& i) {
  WithWholeWarp(w, i, [&] {
    const bool are_half = i.y & kHalfSums;
    const auto element = static_cast<MatrixElement>(i.y >> kElementShift);
    const bool is_tf32 = element == MatrixElement::kTf32;
    MatrixProduct product;
    product.depth = i.x;
    const uint32_t num_sums = are_half ? 2 : 4;
    const uint32_t* left = i.list + 2 * num_sums;
    const uint32_t* right = left + product.depth / (is_tf32 ? 2 : 4);
    product.LoadSums(w, i.list + num_sums, are_half);
    if (is_tf32) {
      SetTf32(product, w, left, right);
    } else {
      product.SetLeft(w, left, element);
      SetRight(product, w, right, element);
    }
    product.Multiply();
    product.StoreSums(w, i.list, are_half);
  });
}

// Appends the registers of vector operand `index`; false if there are not `count`.
bool AppendRegisters(Lowering& l, size_t index, size_t count, ScalarType type, bool is_defined,
                     std::vector<VirtualOperand>* list) {
  const ptx::Operand& operand = l.operand(index);
  const bool is_vector = operand.kind == OperandKind::kVector;
  if ((is_vector ? operand.parts.size() : 1) != count) return l.Invalid("a fragment of another length");
  for (size_t k = 0; k < count; ++k) {
    const ptx::Operand& part = is_vector ? operand.parts[k] : operand;
    list->push_back(is_defined ? l.Define(part, type) : l.Use(part, type));
  }
  return true;
}

bool DecodeMma(Lowering& l) {
  // mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32: types of d, a, b, c.
  uint32_t depth = l.Has("m16n8k16") ? 16 : l.Has("m16n8k8") ? 8 : l.Has("m16n8k4") ? 4 : 0;
  const ScalarType sums = l.Type(0);
  const bool is_tf32 = l.Has("tf32");
  MatrixElement element = MatrixElement::kTf32;
  if (!is_tf32) {
    if (l.Type(1) != l.Type(2) || l.Type(3) != sums) return false;
    if (l.Type(1) != ScalarType::kF16 && l.Type(1) != ScalarType::kBf16) return false;
    element = l.Type(1) == ScalarType::kF16 ? MatrixElement::kF16 : MatrixElement::kBf16;
  }
  if (l.Modifier(0) != "sync" || depth == 0 || !l.Has("row") || !l.Has("col")) return false;
  if (is_tf32 ? depth == 16 : depth == 4) return false;
  const bool are_half = sums == ScalarType::kF16;
  if (!are_half && sums != ScalarType::kF32) return false;
  if (are_half && element != MatrixElement::kF16) return false;
  std::vector<VirtualOperand> list;
  const size_t num_sums = are_half ? 2 : 4;
  const ScalarType sum_register = are_half ? ScalarType::kB32 : ScalarType::kF32;
  const size_t num_left = is_tf32 ? depth / 2 : depth / 4;
  if (!AppendRegisters(l, 0, num_sums, sum_register, true, &list) ||
      !AppendRegisters(l, 3, num_sums, sum_register, false, &list) ||
      !AppendRegisters(l, 1, num_left, ScalarType::kB32, false, &list) ||
      !AppendRegisters(l, 2, num_left / 2, ScalarType::kB32, false, &list))
    return false;
  LoweredInstruction& lowered = l.Emit(&OpMma);
  lowered.i.x = depth;
  lowered.i.y = (are_half ? kHalfSums : 0) | static_cast<uint32_t>(element) << kElementShift;
  lowered.list = std::move(list);
  lowered.num_defined = static_cast<uint32_t>(num_sums);
  return true;
}

}  // namespace

void AddMmaOpcodes(OpcodeTable& table) { table["mma"] = {&DecodeMma, true}; }

}  // namespace tally::sim_driver
