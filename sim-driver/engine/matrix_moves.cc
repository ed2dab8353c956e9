// Fragments from and to shared memory: ldmatrix, stmatrix, movmatrix of 8 by 8 elements of 16 bits.

#include "sim-driver/engine/matrix.h"
#include "sim-driver/engine/memory_access.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/warp_sync.h"

namespace tally::sim_driver {
namespace {

constexpr uint32_t kSize = 8;  // rows, and elements of a row
constexpr uint32_t kRowBytes = 16;
constexpr uint32_t kTransposed = 1u << 8;
constexpr uint32_t kCountMask = 0xff;

struct Fragment {
  uint16_t at[kSize][kSize];

  // Lane 4*g + t holds columns 2t and 2t+1 of row g.
  void FromLanes(const uint32_t* lanes, bool is_transposed) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      for (uint32_t k = 0; k < 2; ++k) {
        const uint32_t row = lane / 4, column = lane % 4 * 2 + k;
        const auto value = static_cast<uint16_t>(lanes[lane] >> 16 * k);
        (is_transposed ? at[column][row] : at[row][column]) = value;
      }
    }
  }
  void ToLanes(uint32_t* lanes, bool is_transposed) const {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t row = lane / 4, column = lane % 4 * 2;
      const uint32_t low = is_transposed ? at[column][row] : at[row][column];
      const uint32_t high = is_transposed ? at[column + 1][row] : at[row][column + 1];
      lanes[lane] = low | high << 16;
    }
  }
};

// The row of fragment `k` that lane 8*k + row names; null after a fault.
std::byte* RowAt(Warp& w, const Instruction& i, uint32_t k, uint32_t row, bool is_write) {
  const uint32_t lane = kSize * k + row;
  const uint64_t address = Source<uint64_t>(w, i.a)[lane] + static_cast<uint64_t>(i.imm);
  return ResolveAddress(w, i, lane, static_cast<Space>(i.x), address, kRowBytes, kRowBytes, is_write);
}

// a = address, list = registers; x = space, y = how many | kTransposed.
void OpLoadFragments(Warp& w, const Instruction& i) {
  WithWholeWarp(w, i, [&] {
    for (uint32_t k = 0; k < (i.y & kCountMask); ++k) {
      Fragment fragment;
      for (uint32_t row = 0; row < kSize; ++row) {
        const std::byte* from = RowAt(w, i, k, row, false);
        if (from == nullptr) return;
        std::memcpy(fragment.at[row], from, kRowBytes);
      }
      fragment.ToLanes(Target<uint32_t>(w, i.list[k]), i.y & kTransposed);
    }
  });
}
void OpStoreFragments(Warp& w, const Instruction& i) {
  WithWholeWarp(w, i, [&] {
    for (uint32_t k = 0; k < (i.y & kCountMask); ++k) {
      Fragment fragment;
      fragment.FromLanes(Source<uint32_t>(w, i.list[k]), i.y & kTransposed);
      for (uint32_t row = 0; row < kSize; ++row) {
        std::byte* to = RowAt(w, i, k, row, true);
        if (to == nullptr) return;
        std::memcpy(to, fragment.at[row], kRowBytes);
      }
    }
  });
}

void OpTransposeFragment(Warp& w, const Instruction& i) {  // d = a
  WithWholeWarp(w, i, [&] {
    Fragment fragment;
    fragment.FromLanes(Source<uint32_t>(w, i.a), true);
    fragment.ToLanes(Target<uint32_t>(w, i.d), false);
  });
}

template <bool kIsLoad>
bool DecodeFragments(Lowering& l) {
  const uint32_t count = l.Has("x4") ? 4 : l.Has("x2") ? 2 : l.Has("x1") ? 1 : 0;
  if (!l.Has("m8n8") || !l.Has("b16") || count == 0) return false;
  StateSpace state_space = StateSpace::kNone;
  const Space space = SpaceOf(l, &state_space);
  const ptx::Operand& registers = l.operand(kIsLoad ? 0 : 1);
  const Lowering::Address address = l.AddressOf(l.operand(kIsLoad ? 1 : 0), state_space);
  const VirtualOperand base = l.WideAddress(address);
  const bool is_vector = registers.kind == OperandKind::kVector;
  if ((is_vector ? registers.parts.size() : 1) != count) return l.Invalid("as many registers as there are matrices");
  std::vector<VirtualOperand> list;
  for (uint32_t k = 0; k < count; ++k) {
    const ptx::Operand& part = is_vector ? registers.parts[k] : registers;
    list.push_back(kIsLoad ? l.Define(part, ScalarType::kB32) : l.Use(part, ScalarType::kB32));
  }
  LoweredInstruction& lowered = l.Emit(kIsLoad ? &OpLoadFragments : &OpStoreFragments, kNoOperand, base);
  lowered.i.imm = address.offset;
  lowered.i.x = static_cast<uint32_t>(space);
  lowered.i.y = count | (l.Has("trans") ? kTransposed : 0);
  lowered.list = std::move(list);
  lowered.num_defined = kIsLoad ? count : 0;
  return true;
}

bool DecodeTranspose(Lowering& l) {
  if (!l.Has("m8n8") || !l.Has("trans") || !l.Has("b16")) return false;
  const VirtualOperand a = l.Use(1, ScalarType::kB32);
  l.Emit(&OpTransposeFragment, l.Define(0, ScalarType::kB32), a);
  return true;
}

}  // namespace

void AddMatrixMoveOpcodes(OpcodeTable& table) {
  table["ldmatrix"] = {&DecodeFragments<true>, true};
  table["stmatrix"] = {&DecodeFragments<false>, true};
  table["movmatrix"] = {&DecodeTranspose, true};
}

}  // namespace tally::sim_driver
