// Program: PTX text compiled and linked into the form that Machine (machine.h) executes.
//
//   Result<std::shared_ptr<const Program>> program = CompileProgram({{ptx_text}});
//   optional<uint32_t> kernel = (*program)->FindKernel("saxpy");
//
// A Program is immutable, thread-safe and knows no addresses: whoever loads it into a context allocates memory for its
// variables, writes their initial bytes (InitialBytes) and names the addresses in each LaunchRequest. So one Program
// may be loaded into any number of contexts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tally::sim_driver {

// One formal parameter of a kernel, in the packed parameter buffer.
struct KernelParameter {
  uint32_t offset_bytes = 0;
  uint32_t size_bytes = 0;
};

struct Kernel {
  std::string name;
  std::vector<KernelParameter> parameters;
  uint32_t parameter_bytes = 0;                // of the packed buffer
  uint32_t num_registers = 0;                  // estimate per thread, at least 16, at most 255
  uint32_t entry_registers = 0;                // of a thread at the start, if setmaxnreg has an effect; else 0
  uint32_t static_shared_bytes = 0;            // what the kernel and all that it can call declare
  uint32_t dynamic_shared_offset_bytes = 0;    // where extern .shared arrays start; >= static_shared_bytes
  uint32_t local_bytes_per_thread = 0;         // estimate of one call chain
  uint32_t max_threads_per_block = 1024;       // from .maxntid or .reqntid, else 1024
  std::array<uint32_t, 3> required_block{};    // .reqntid; zero: not given
  std::array<uint32_t, 3> required_cluster{};  // .reqnctapercluster; zero: not given
  bool is_explicit_cluster = false;            // .explicitcluster: launches must give or inherit cluster dimensions
  uint32_t min_blocks_per_sm = 0;              // .minnctapersm; 0: not given
  bool uses_printf = false;
  // Not empty: this kernel (or a function that it may call) needs what this driver does not do, by name, such as
  // "mma.sync.aligned.m16n8k16... (PTX line 120)". Launching it ends in a Fault with code 801 (NOT_SUPPORTED).
  std::string unsupported;
};

enum class VariableSpace : uint8_t { kGlobal, kConstant };

// Write the address of a symbol (plus addend) into a variable's bytes. Function addresses are
// Program::FunctionAddress; variable addresses are the context's.
struct Relocation {
  uint32_t offset_bytes = 0;  // inside the variable
  uint32_t size_bytes = 8;    // bytes of the address kept, from `shift_bits` up; 1, 2, 4 or 8
  uint32_t shift_bits = 0;
  bool is_function = false;
  uint32_t index = 0;  // of the variable, or of the function
  int64_t addend = 0;
};

struct Variable {
  std::string name;  // as in the PTX; several internal ones of different texts may share a name
  VariableSpace space = VariableSpace::kGlobal;
  uint64_t size_bytes = 0;
  uint32_t align = 1;
  bool is_managed = false;
  bool is_visible = false;               // not internal to its text: cuModuleGetGlobal should prefer these
  std::vector<std::byte> initial_bytes;  // may be shorter than size_bytes: the rest is zero
  std::vector<Relocation> relocations;   // apply after copying initial_bytes
};

class ProgramCode;  // internal to the engine

class Program {
 public:
  explicit Program(std::unique_ptr<const ProgramCode> code);
  ~Program();

  const std::vector<Kernel>& kernels() const;
  const std::vector<Variable>& variables() const;
  std::optional<uint32_t> FindKernel(std::string_view name) const;
  std::optional<uint32_t> FindVariable(std::string_view name) const;
  // What device code sees as the address of a function: never zero, never a data address.
  uint64_t FunctionAddress(uint32_t function_index) const;
  // The size_bytes bytes that variable `index` starts with when the variables lie at `variable_addresses`.
  std::vector<std::byte> InitialBytes(uint32_t index, std::span<const uint64_t> variable_addresses) const;

  const ProgramCode& code() const { return *code_; }

 private:
  std::unique_ptr<const ProgramCode> code_;
};

// Compiles and links translation units: extern symbols are resolved by name over all texts, weak ones merged. Errors:
// kInvalidArgument (does not parse or makes no sense: "ptx:LINE:COL: ...", as ptxas would refuse), kNotFound
// (unresolved extern variable). An instruction that is valid but not supported, or an unresolved extern function, is
// no error here: see Kernel::unsupported. Safe on hostile text.
Result<std::shared_ptr<const Program>> CompileProgram(std::span<const std::string_view> ptx_texts);

}  // namespace tally::sim_driver
