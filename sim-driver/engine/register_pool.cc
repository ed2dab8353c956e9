// setmaxnreg (PTX ISA 9.7.19.5): the registers that a block was launched with, given back and taken by its warps. On a
// GPU a warp that asks for more than the others have given back waits, if need be for ever.
#include "sim-driver/engine/barrier.h"
#include "sim-driver/engine/delay.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {
namespace {

constexpr uint64_t kLeastRegisters = 24;
constexpr uint64_t kMostRegisters = 256;
constexpr uint64_t kRegisterStep = 8;

// x = registers of a thread from now on. A warp has them whole, so lanes that come apart find nothing left to do.
void OpGiveRegisters(Warp& w, const Instruction& i) {
  if (i.x >= w.registers) return;
  w.block->free_registers += w.registers - i.x;
  w.registers = i.x;
  // They look again.
  for (Warp& other : w.block->warps) {
    for (Split& split : other.splits)
      if (split.state == SplitState::kRegisters) split.state = SplitState::kRunnable;
  }
}

void OpTakeRegisters(Warp& w, const Instruction& i) {
  if (w.registers == 0 || i.x <= w.registers || DelaysBefore(w, i)) return;
  const uint32_t more = i.x - w.registers;
  if (more <= w.block->free_registers) {
    w.block->free_registers -= more;
    w.registers = i.x;
    return;
  }
  w.CountInstructions();
  w.splits[w.current] = {
      .mask = w.mask, .state = SplitState::kRegisters, .pc = &i, .frame = w.frame, .record = w.record};
  w.Stop(StopReason::kBlocked);
}

bool DecodeRegisters(Lowering& l) {
  const std::string_view action = l.Modifier(0);
  const ptx::Operand& count = l.operand(0);
  if (action != "inc" && action != "dec") return false;
  if (count.kind != OperandKind::kInteger || count.bits < kLeastRegisters || count.bits > kMostRegisters ||
      count.bits % kRegisterStep != 0)
    return l.Invalid("how many registers: a multiple of 8 from 24 to 256");
  l.Emit(action == "inc" ? &OpTakeRegisters : &OpGiveRegisters).i.x = static_cast<uint32_t>(count.bits);
  return true;
}

}  // namespace

std::string DescribeRegisters(const Warp& w) {
  return Format(" (a thread of it has {} registers, and those given back by others are {} for each of its threads)",
                w.registers, w.block->free_registers);
}

void AddRegisterPoolOpcodes(OpcodeTable& table) { table["setmaxnreg"] = {&DecodeRegisters, true}; }

}  // namespace tally::sim_driver
