// Products of a warpgroup: wgmma of f16 and bf16. Each warp computes its 16 of the 64 rows when it comes to the
// instruction, which is one of the orders that PTX allows. But a product is one operation of four warps: who waits for
// its group waits until all four have begun it, and after that nobody reads its operands.

#include <algorithm>

#include "sim-driver/engine/delay.h"
#include "sim-driver/engine/matrix.h"
#include "sim-driver/engine/memory_access.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/text.h"
#include "sim-driver/engine/warp_sync.h"

namespace tally::sim_driver {
namespace {

constexpr size_t kWarpsOfWarpgroup = 4;
constexpr uint64_t kMostGroups = 7;
constexpr uint32_t kDepth = 16;
constexpr uint32_t kChunkBytes = 16;  // 8 elements: what swizzling moves

// A matrix in shared memory, as a 64-bit descriptor says (PTX ISA 9.7.16.5.1, "Matrix Descriptor Format"). Canonical
// layouts as in that section: 8 rows of `span` bytes one after the other; the strides lead to the next such block.
struct SharedMatrix {
  uint32_t start = 0;
  uint32_t leading_bytes = 0;
  uint32_t stride_bytes = 0;
  uint32_t span_bytes = 0;  // of a swizzled row: 32, 64, 128; 16: not swizzled
  bool is_transposed = false;

  static constexpr uint32_t kFieldMask = 0x3fff;
  static SharedMatrix Of(uint64_t descriptor, bool is_transposed) {
    constexpr uint32_t kSpans[] = {16, 128, 64, 32};
    return {.start = (static_cast<uint32_t>(descriptor) & kFieldMask) << 4,
            .leading_bytes = (static_cast<uint32_t>(descriptor >> 16) & kFieldMask) << 4,
            .stride_bytes = (static_cast<uint32_t>(descriptor >> 32) & kFieldMask) << 4,
            .span_bytes = kSpans[descriptor >> 62],
            .is_transposed = is_transposed};
  }
  // Where 8 elements are that follow one another: along k from (row, k), or along the rows if transposed.
  uint32_t ChunkAt(uint32_t row, uint32_t k) const {
    const bool is_plain = span_bytes == kChunkBytes;
    uint32_t at = start;
    if (!is_transposed) {
      at += row / 8 * stride_bytes + row % 8 * span_bytes + k / 8 * (is_plain ? leading_bytes : kChunkBytes);
    } else if (is_plain) {
      at += row / 8 * stride_bytes + k / 8 * leading_bytes + k % 8 * kChunkBytes;
    } else {
      const uint32_t rows_of_span = span_bytes / 2;
      at += row / rows_of_span * leading_bytes + k / 8 * stride_bytes + k % 8 * span_bytes + row % rows_of_span * 2;
    }
    return at ^ ((at >> 7 & (span_bytes / kChunkBytes - 1)) << 4);
  }
};

// Calls set(row, k, bits) for `rows` rows from `first_row` on. False after a fault.
template <typename Set>
bool ReadMatrix(Warp& w, const Instruction& i, const SharedMatrix& matrix, uint32_t first_row, uint32_t rows, Set set) {
  const uint32_t row_step = matrix.is_transposed ? 8 : 1, k_step = matrix.is_transposed ? 1 : 8;
  for (uint32_t row = 0; row < rows; row += row_step) {
    for (uint32_t k = 0; k < kDepth; k += k_step) {
      const std::byte* from = ResolveAddress(w, i, kLanes, Space::kShared, matrix.ChunkAt(first_row + row, k),
                                             kChunkBytes, kChunkBytes, false);
      if (from == nullptr) return false;
      uint16_t elements[8];
      std::memcpy(elements, from, sizeof elements);
      for (uint32_t n = 0; n < 8; ++n)
        matrix.is_transposed ? set(row + n, k, elements[n]) : set(row, k + n, elements[n]);
    }
  }
  return true;
}

constexpr uint32_t kHalfSums = 1;
constexpr uint32_t kIsBf16 = 2;
constexpr uint32_t kLeftInRegisters = 4;
constexpr uint32_t kNegatesLeft = 8;
constexpr uint32_t kNegatesRight = 16;
constexpr uint32_t kLeftTransposed = 32;
constexpr uint32_t kRightTransposed = 64;

// What all lanes must agree on.
bool IsUniform(Warp& w, const Instruction& i, uint32_t operand, uint64_t* value) {
  const uint64_t* values = Source<uint64_t>(w, operand);
  *value = values[0];
  for (uint32_t lane = 1; lane < kLanes; ++lane) {
    if (values[lane] == values[0]) continue;
    RaiseFault(w, i, lane, kFaultLaunchFailed, "threads of a warp give different matrix descriptors");
    return false;
  }
  if (*value >> 49 & 7) {
    RaiseFault(w, i, kLanes, kFaultNotSupported, "a matrix descriptor with a base offset");
    return false;
  }
  return true;
}

// list = sums (written, then read), then the left operand's registers; a, b = descriptors, c = are there sums before?
// x = columns, y = flags.
void OpWarpgroupProduct(Warp& w, const Instruction& i) {
  // Late, too: who goes on without having waited for it overwrites what it has yet to read.
  if (DelaysBefore(w, i)) return;
  WithWholeWarp(w, i, [&] {
    const bool are_half = i.y & kHalfSums;
    const MatrixElement element = i.y & kIsBf16 ? MatrixElement::kBf16 : MatrixElement::kF16;
    const uint32_t num_sums = i.x / (are_half ? 4 : 2);
    MatrixProduct product;
    product.columns = i.x;
    product.depth = kDepth;
    const uint32_t keeps = SourcePredicate(w, i.c);
    if (keeps != 0 && keeps != kFullMask)
      return RaiseFault(w, i, kLanes, kFaultLaunchFailed, "threads of a warp differ in whether sums are added to");
    if (keeps != 0) {
      product.LoadSums(w, i.list + num_sums, are_half);
    } else {
      std::memset(product.sums, 0, sizeof product.sums);
    }
    const float left_scale = i.y & kNegatesLeft ? -1.f : 1.f, right_scale = i.y & kNegatesRight ? -1.f : 1.f;
    uint64_t descriptor = 0;
    if (i.y & kLeftInRegisters) {
      product.SetLeft(w, i.list + 2 * num_sums, element, left_scale);
    } else {
      if (!IsUniform(w, i, i.a, &descriptor)) return;
      const auto first_row = static_cast<uint32_t>(w.index % kWarpsOfWarpgroup * kFragmentRows);
      if (!ReadMatrix(w, i, SharedMatrix::Of(descriptor, i.y & kLeftTransposed), first_row, kFragmentRows,
                      [&](uint32_t row, uint32_t k, uint16_t bits) {
                        product.left[row][k] = left_scale * ElementValue(element, bits);
                      }))
        return;
    }
    if (!IsUniform(w, i, i.b, &descriptor)) return;
    if (!ReadMatrix(w, i, SharedMatrix::Of(descriptor, i.y & kRightTransposed), 0, product.columns,
                    [&](uint32_t column, uint32_t k, uint16_t bits) {
                      product.right[k][column] = right_scale * ElementValue(element, bits);
                    }))
      return;
    product.Multiply();
    product.StoreSums(w, i.list, are_half);
  });
}

// N of the modifier m64nNk16; 0 for other shapes.
uint32_t ColumnsOf(std::string_view shape) {
  if (!shape.starts_with("m64n") || !shape.ends_with("k16")) return 0;
  uint32_t columns = 0;
  for (const char digit : shape.substr(4, shape.size() - 7)) {
    if (digit < '0' || digit > '9' || columns > kMostColumns) return 0;
    columns = 10 * columns + static_cast<uint32_t>(digit - '0');
  }
  return columns % 8 == 0 && columns <= kMostColumns ? columns : 0;
}

// The immediate 1 or -1 (then `flag`), or 0 or 1 if it says whether an operand is transposed (1: `flag`).
bool TakeImmediate(Lowering& l, size_t index, bool is_scale, uint32_t flag, uint32_t* flags) {
  const ptx::Operand& operand = l.operand(index);
  const auto value = static_cast<int64_t>(operand.bits);
  if (operand.kind != OperandKind::kInteger || (is_scale ? value != 1 && value != -1 : value != 0 && value != 1))
    return l.Invalid("scales of wgmma are 1 and -1, transpositions 0 and 1");
  if (value == (is_scale ? -1 : 1)) *flags |= flag;
  return true;
}

bool DecodeProduct(Lowering& l) {
  const uint32_t columns = ColumnsOf(l.Modifier(3));
  const ScalarType sums = l.Type(0), element = l.Type(1);
  const bool are_half = sums == ScalarType::kF16;
  if (columns == 0 || l.Has("sp") || element != l.Type(2)) return false;
  if (element != ScalarType::kF16 && element != ScalarType::kBf16) return false;
  if (are_half ? element != ScalarType::kF16 : sums != ScalarType::kF32) return false;
  const ptx::Operand& to = l.operand(0);
  const uint32_t num_sums = columns / (are_half ? 4 : 2);
  if (to.kind != OperandKind::kVector || to.parts.size() != num_sums) return l.Invalid("not all sums of the shape");
  const ptx::Operand& left = l.operand(1);
  const bool in_registers = left.kind == OperandKind::kVector;
  if (l.num_operands() != (in_registers ? 7u : 8u)) return l.Invalid("wgmma has 7 or 8 operands here");
  uint32_t flags =
      (are_half ? kHalfSums : 0) | (element == ScalarType::kBf16 ? kIsBf16 : 0) | (in_registers ? kLeftInRegisters : 0);
  if (!TakeImmediate(l, 4, true, kNegatesLeft, &flags) || !TakeImmediate(l, 5, true, kNegatesRight, &flags))
    return false;
  if (!in_registers && !TakeImmediate(l, 6, false, kLeftTransposed, &flags)) return false;
  if (!TakeImmediate(l, in_registers ? 6 : 7, false, kRightTransposed, &flags)) return false;
  const ScalarType type = are_half ? ScalarType::kB32 : ScalarType::kF32;
  std::vector<VirtualOperand> list;
  for (const ptx::Operand& part : to.parts) list.push_back(l.Define(part, type));
  for (const ptx::Operand& part : to.parts) list.push_back(l.Use(part, type));
  VirtualOperand a = kNoOperand;
  if (in_registers) {
    if (left.parts.size() != 4) return l.Invalid("the left operand has four registers");
    for (const ptx::Operand& part : left.parts) list.push_back(l.Use(part, ScalarType::kB32));
  } else {
    a = l.Use(1, ScalarType::kB64);
  }
  const VirtualOperand b = l.Use(2, ScalarType::kB64);
  const VirtualOperand c = l.UsePredicate(3);
  LoweredInstruction& lowered = l.Emit(&OpWarpgroupProduct, kNoOperand, a, b, c);
  lowered.i.x = columns;
  lowered.i.y = flags;
  lowered.list = std::move(list);
  lowered.num_defined = num_sums;
  return true;
}

template <typename Body>
void ForOthersOfWarpgroup(Warp& w, Body body) {
  std::vector<Warp>& warps = w.block->warps;
  const size_t first = w.index / kWarpsOfWarpgroup * kWarpsOfWarpgroup;
  for (size_t k = first; k < std::min(first + kWarpsOfWarpgroup, warps.size()); ++k)
    if (k != w.index) body(warps[k]);
}

void OpCommitGroup(Warp& w, const Instruction& i) {
  WithWholeWarp(w, i, [&] {
    ++w.product_groups;
    // They look again.
    ForOthersOfWarpgroup(w, [](Warp& other) {
      for (Split& split : other.splits)
        if (split.state == SplitState::kWarpgroup) split.state = SplitState::kRunnable;
    });
  });
}

void OpWaitGroup(Warp& w, const Instruction& i) {  // x = how many of the last groups need not be done
  if (DelaysBefore(w, i)) return;
  bool all_came = true;
  ForOthersOfWarpgroup(w, [&](const Warp& other) { all_came &= other.product_groups + i.x >= w.product_groups; });
  if (all_came) return;
  w.CountInstructions();
  w.splits[w.current] = {
      .mask = w.mask, .state = SplitState::kWarpgroup, .pc = &i, .frame = w.frame, .record = w.record};
  w.Stop(StopReason::kBlocked);
}

bool DecodeWarpgroup(Lowering& l) {
  const std::string_view what = l.Modifier(0);
  if (what == "mma_async") return DecodeProduct(l);
  if (what == "commit_group") {
    l.Emit(&OpCommitGroup);
    return true;
  }
  if (what == "wait_group") {
    const ptx::Operand& groups = l.operand(0);
    if (groups.kind != OperandKind::kInteger || groups.bits > kMostGroups) return l.Invalid("how many groups: 0 to 7");
    l.Emit(&OpWaitGroup).i.x = static_cast<uint32_t>(groups.bits);
    return true;
  }
  return what == "fence";
}

}  // namespace

void AddWarpgroupOpcodes(OpcodeTable& table) { table["wgmma"] = {&DecodeWarpgroup, true}; }

}  // namespace tally::sim_driver
