#include "cubin-transforms/gate/machine_code.h"

#include <cstring>

namespace tally::cubin_transforms {
namespace {

constexpr uint32_t Opcode(const Instruction& instruction) { return instruction.low & 0xFFF; }
constexpr bool IsConditional(const Instruction& instruction) { return (instruction.low >> 12 & 15) != 7; }

// Not 0x344: an indirect call, relative to the kernel's beginning, which it names as if it led there.
constexpr uint32_t kCall = 0x944, kSyncPoint = 0x945, kBranch = 0x947, kUniformBranch = 0x547;
constexpr uint32_t kFirstArchWithSplitDistance = 90;  // the lowest 8 bits of a branch's distance stand apart
constexpr uint32_t kDistanceShift = 34, kLowDistanceShift = 16;

// Scheduling, in the high word.
constexpr uint64_t kAwaitAllScoreboards = uint64_t{0x3F} << 52;
constexpr uint64_t kReuseOfOperands = uint64_t{0xF} << 58;

}  // namespace

Instruction InstructionAt(std::span<const std::byte> code, uint64_t offset) {
  Instruction instruction;
  std::memcpy(&instruction, code.data() + offset, sizeof(instruction));
  return instruction;
}

bool CanMove(const Instruction& instruction) {
  if (IsConditional(instruction)) return false;
  switch (Opcode(instruction)) {
    case 0xB82:  // LDC R, c[bank][fixed]; with another register than RZ it would be indexed
      return (instruction.low >> 24 & 0xFF) == 0xFF;
    case 0x202:  // MOV R, R
    case 0x802:  // MOV R, immediate
    case 0xA02:  // MOV R, c[bank][fixed]
    case 0x224:  // IMAD R, R, R, R
    case 0x424:  // IMAD with an immediate
    case 0x624:  // IMAD with c[bank][fixed]; IMAD.MOV is how a move is mostly written
      return true;
    default:
      return false;
  }
}

std::optional<int64_t> BranchTarget(uint32_t arch, const Instruction& instruction, int64_t offset) {
  const uint32_t opcode = Opcode(instruction);
  if (opcode != kBranch && opcode != kUniformBranch && opcode != kCall && opcode != kSyncPoint) return std::nullopt;
  // 30 bits of it stand in the low word; those in the high one repeat the sign or (from sm_100) mean other things.
  int64_t words = static_cast<int64_t>(instruction.low) >> kDistanceShift;
  if (arch >= kFirstArchWithSplitDistance && opcode != kSyncPoint)
    words = words * 256 + static_cast<int64_t>(instruction.low >> kLowDistanceShift & 0xFF);
  return offset + static_cast<int64_t>(kInstructionBytes) + words * 4;
}

Instruction JumpTo(const GateTemplate& gate, int64_t from, int64_t to) {
  Instruction jump = gate.jump;
  int64_t words = (to - from - static_cast<int64_t>(kInstructionBytes)) / 4;
  if (gate.arch >= kFirstArchWithSplitDistance) {
    jump.low |= (static_cast<uint64_t>(words) & 0xFF) << kLowDistanceShift;
    words >>= 8;
  }
  jump.low |= static_cast<uint64_t>(words) << kDistanceShift;
  jump.high |= static_cast<uint64_t>(words) >> (64 - kDistanceShift) & 0x3FFFF;
  return jump;
}

std::vector<Instruction> MakeGate(const GateTemplate& gate, uint64_t gate_at, uint32_t parameters_at,
                                  const Instruction& first) {
  std::vector<Instruction> code(gate.code.begin(), gate.code.end());
  for (const OffsetPlace& place : gate.places)
    code[place.index].low += static_cast<uint64_t>(parameters_at - gate.parameter_base) << place.shift;
  for (const uint16_t entry : gate.entries) {
    // Nothing of the gate may be under way when the kernel starts, and no operand is at hand from the one before.
    Instruction moved = first;
    moved.high = (moved.high | kAwaitAllScoreboards) & ~kReuseOfOperands;
    code[entry] = moved;
    const auto jump_at = static_cast<int64_t>(gate_at + (entry + uint64_t{1}) * kInstructionBytes);
    code[entry + uint64_t{1}] = JumpTo(gate, jump_at, kInstructionBytes);
  }
  return code;
}

}  // namespace tally::cubin_transforms
