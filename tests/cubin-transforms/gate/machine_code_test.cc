#include "cubin-transforms/gate/machine_code.h"

#include <gtest/gtest.h>

namespace tally::cubin_transforms {
namespace {

TEST(JumpTo, LeadsWhereBranchTargetSays) {
  for (const GateTemplate& gate : GateTemplates()) {
    for (const int64_t from : {0, 16, 4096, 1 << 20})
      for (const int64_t to : {0, 16, 32, 4112, 1 << 21})
        EXPECT_EQ(BranchTarget(gate.arch, JumpTo(gate, from, to), from), to) << gate.arch << ' ' << from;
  }
}

// The gates' own branches were made by ptxas: all of them stay inside, but for those that enter the kernel.
TEST(MakeGate, LeadsToTheSecondInstructionAndNowhereElse) {
  constexpr Instruction kFirst = {0x0000'0a00'ff01'7b82, 0x000f'e200'0000'0800};  // LDC R1, c[0x0][0x28]
  constexpr uint64_t kGateAt = 0x480;
  for (const GateTemplate& gate : GateTemplates()) {
    const std::vector<Instruction> code = MakeGate(gate, kGateAt, gate.parameter_base + 64, kFirst);
    size_t num_entries = 0;
    for (size_t i = 0; i < code.size(); ++i) {
      const int64_t at = static_cast<int64_t>(kGateAt + i * kInstructionBytes);
      const std::optional<int64_t> target = BranchTarget(gate.arch, code[i], at);
      if (!target) continue;
      if (*target == int64_t{kInstructionBytes}) {
        EXPECT_EQ(code[i - 1].low, kFirst.low) << gate.arch;
        ++num_entries;
      } else {
        EXPECT_GT(*target, static_cast<int64_t>(kGateAt)) << gate.arch << " instruction " << i;
        EXPECT_LT(*target, static_cast<int64_t>(kGateAt + code.size() * kInstructionBytes));
      }
    }
    EXPECT_EQ(num_entries, gate.entries.size()) << gate.arch;
  }
}

TEST(MakeGate, MovesTheFirstInstructionSafely) {
  // With operands kept from the one before, and no waiting.
  constexpr Instruction kFirst = {0x0000'0a00'ff01'7a02, uint64_t{0xF} << 58};
  for (const GateTemplate& gate : GateTemplates()) {
    const std::vector<Instruction> code = MakeGate(gate, 128, gate.parameter_base, kFirst);
    for (const uint16_t entry : gate.entries) {
      EXPECT_EQ(code[entry].low, kFirst.low);
      EXPECT_EQ(code[entry].high, uint64_t{0x3F} << 52);  // waits for all scoreboards, keeps no operands
    }
  }
}

TEST(MakeGate, PutsTheParametersWhereTheyAre) {
  for (const GateTemplate& gate : GateTemplates()) {
    const auto near = MakeGate(gate, 128, gate.parameter_base, {}),
               far = MakeGate(gate, 128, gate.parameter_base + 4096, {});
    size_t num_differing = 0;
    for (size_t i = 0; i < near.size(); ++i) num_differing += near[i] == far[i] ? 0 : 1;
    EXPECT_EQ(num_differing, gate.places.size()) << gate.arch;
    EXPECT_GE(num_differing, 3u) << gate.arch;  // record, base, chunk
  }
}

TEST(CanMove, KnowsLoadsAndMovesAlone) {
  const auto with_opcode = [](uint64_t opcode) { return Instruction{0xff00'0000 | 0x7000 | opcode, 0}; };
  for (const uint64_t opcode : {0xB82, 0x202, 0x802, 0xA02, 0x224, 0x424, 0x624})
    EXPECT_TRUE(CanMove(with_opcode(opcode))) << opcode;
  for (const uint64_t opcode : {0x947, 0x94D, 0x919, 0x355, 0x9C3, 0xC0C, 0x000, 0x944})
    EXPECT_FALSE(CanMove(with_opcode(opcode))) << opcode;
}

}  // namespace
}  // namespace tally::cubin_transforms
