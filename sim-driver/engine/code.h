// ProgramCode: what a Program hides. Functions as Instruction arrays, constants, layouts. Immutable once built.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim-driver/engine/instruction.h"
#include "sim-driver/engine/program.h"

namespace tally::sim_driver {

// A formal parameter or return value of a function, in the parameter area of its frame.
struct FormalSlot {
  uint32_t offset_bytes = 0;
  uint32_t size_bytes = 0;
};

struct FunctionCode {
  std::string name;
  uint32_t index = 0;
  bool is_kernel = false;
  bool is_defined = false;
  std::vector<Instruction> instructions;  // ends with an instruction that never falls through
  std::vector<SourceRef> sources;         // parallel
  std::vector<std::unique_ptr<uint32_t[]>> lists;
  uint32_t frame_bytes = 0;             // registers, a multiple of 64
  uint32_t local_bytes = 0;             // .local variables, a multiple of 16
  uint32_t parameter_stride_bytes = 0;  // parameter area per lane, a multiple of 16
  std::vector<FormalSlot> parameters;
  std::vector<FormalSlot> returns;
  std::string unsupported;  // reason, of this function alone
};

class ProgramCode {
 public:
  std::vector<std::unique_ptr<FunctionCode>> functions;
  std::vector<Kernel> kernels;
  std::vector<uint32_t> kernel_functions;  // function index, per kernel
  std::vector<bool> kernel_needs_stack;    // recursion, indirect calls or alloca: local memory beyond what is declared
  std::vector<Variable> variables;
  std::vector<std::unique_ptr<const std::string>> texts;
  std::vector<uint64_t> constants;  // broadcast values; kept 64-byte aligned by constant_base
  std::unordered_map<std::string, uint32_t> kernel_names;
  std::unordered_map<std::string, uint32_t> variable_names;

  const std::byte* constant_base() const {
    auto address = reinterpret_cast<uintptr_t>(constants.data());
    return reinterpret_cast<const std::byte*>((address + 63) & ~uintptr_t{63});
  }
};

// Generic addresses that are not host addresses: windows above the canonical 47 bits.
inline constexpr uint64_t kWindowMask = 0xff00000000000000;
inline constexpr uint64_t kSharedWindow = 0x0100000000000000;    // | shared address
inline constexpr uint64_t kLocalWindow = 0x0200000000000000;     // | offset in the thread's own local memory
inline constexpr uint64_t kParamWindow = 0x0300000000000000;     // | offset in the kernel's parameters
inline constexpr uint64_t kFunctionWindow = 0x0400000000000000;  // | (function index + 1) * 16

// A shared address: offset in the block's shared memory; bits 24 and up: 0 for the own block, else cluster rank + 1.
inline constexpr uint32_t kSharedRankShift = 24;

}  // namespace tally::sim_driver
