// The little that is known about machine instructions, for finding out whether a kernel's first one can be moved and
// for leading there. Not a disassembler: what is not recognised is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cubin-transforms/gate/gate_template.h"

namespace tally::cubin_transforms {

// The instruction at that byte offset, which must be inside.
Instruction InstructionAt(std::span<const std::byte> code, uint64_t offset);

// Whether it does the same wherever it stands: an unconditional load of a register from a constant bank at a fixed
// place, or a move from there, of an immediate or of another register.
bool CanMove(const Instruction& instruction);

// Where the relative branch or call at `offset` leads, in bytes from the code's beginning; nothing if it is none.
std::optional<int64_t> BranchTarget(uint32_t arch, const Instruction& instruction, int64_t offset);

// `jump` (of a template) so that, standing at byte offset `from`, it leads to `to`.
Instruction JumpTo(const GateTemplate& gate, int64_t from, int64_t to);

// The code to be appended to a kernel at byte offset `gate_at`, for parameters `parameters_at` bytes into the constant
// bank. It ends with `first`, the kernel's first instruction, and a jump to the second, wherever the kernel is entered.
std::vector<Instruction> MakeGate(const GateTemplate& gate, uint64_t gate_at, uint32_t parameters_at,
                                  const Instruction& first);

}  // namespace tally::cubin_transforms
