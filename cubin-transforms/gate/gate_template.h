// The gate's machine code for one architecture, as ptxas made it at build time (make_templates.py).
#pragma once

#include <cstdint>
#include <span>

namespace tally::cubin_transforms {

// One machine instruction of sm_70 and later: 128 bits.
struct Instruction {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Instruction&) const = default;
};
inline constexpr uint64_t kInstructionBytes = sizeof(Instruction);

// `code[index].low` holds the place of the gate's parameters in the constant bank, shifted left by `shift`.
struct OffsetPlace {
  uint16_t index = 0;
  uint8_t shift = 0;
};

struct GateTemplate {
  uint32_t arch = 0;                  // 90 for sm_90
  std::span<const Instruction> code;  // for parameters at the beginning of the kernel's parameter space
  std::span<const uint16_t> entries;  // indices in `code`; there and behind stand what enters the kernel
  std::span<const OffsetPlace> places;
  std::span<const uint32_t> exits;      // byte offsets in the gate of the instructions where a block leaves
  std::span<const uint32_t> warp_wide;  // byte offsets of votes and shuffles,
  std::span<const uint32_t> masks;      // and as many registers that hold their masks
  Instruction nop;
  Instruction jump;                 // an unconditional branch to the next instruction
  uint32_t registers = 0;           // that the gate needs
  uint32_t parameter_base = 0;      // where in the constant bank a kernel's parameters begin
  uint32_t parameter_bits = 0;      // of a KPARAM_INFO record, besides the size
  bool needs_stack_record = false;  // CRS_STACK_SIZE
  bool reads_ctaid_z = false;       // has to be said before sm_90: CTAIDZ_USED
};

// All there are, by architecture; which depends on the ptxas of the build.
std::span<const GateTemplate> GateTemplates();
// Null if there is none. sm_87 and sm_88 execute the code of sm_86.
const GateTemplate* FindGateTemplate(uint32_t arch);

}  // namespace tally::cubin_transforms
