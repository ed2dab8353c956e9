// Instruction: one decoded operation on a whole warp. Programs are arrays of these; see README.md for the life of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tally::sim_driver {

struct Warp;
struct Instruction;
using OpFunction = void (*)(Warp&, const Instruction&);

inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kFullMask = 0xffffffffu;

// Registers live in frames as 32 lanes side by side (a predicate: one bit per lane in a uint32_t). An operand is the
// byte offset of its lanes in the frame, or, with the lowest bit set, in the program's pool of broadcast constants.
struct alignas(64) Instruction {
  OpFunction op = nullptr;
  uint32_t d = 0;  // written
  uint32_t e = 0;  // written as well
  uint32_t a = 0;  // read
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t f = 0;
  int64_t imm = 0;                 // address offset, count, index: each operation says
  const uint32_t* list = nullptr;  // further operands (vector loads and stores)
  const void* target = nullptr;    // Instruction or FunctionCode to go to
  uint32_t x = 0;                  // small parameters, resolved when decoding
  uint32_t y = 0;
};
static_assert(sizeof(Instruction) == 64);

// Where an instruction was written.
struct SourceRef {
  uint32_t text = 0;  // index into ProgramCode::texts
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t line = 0;
};

}  // namespace tally::sim_driver
