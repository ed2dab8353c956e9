// Read-only view of a cubin: an ELF file of machine code. Bounds-checked everywhere; the bytes may be hostile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tally::images {

struct CubinParameter {
  uint32_t offset = 0;  // bytes in the parameter buffer; parameter 0 is not always at 0
  uint32_t bytes = 0;
};

// What a cubin says about one kernel. Zero where it says nothing.
struct CubinKernel {
  std::string_view name;
  std::vector<CubinParameter> parameters;         // by ordinal
  uint32_t parameter_bytes = 0;                   // of the whole buffer
  std::array<uint32_t, 3> max_threads = {};       // __launch_bounds__ / .maxntid
  std::array<uint32_t, 3> required_threads = {};  // .reqntid
  std::array<uint32_t, 3> cluster = {};           // blocks per cluster, if fixed at compile time
  uint32_t registers = 0;                         // per thread
  uint32_t static_shared_bytes = 0;               // without the 1 KiB that sm_90 and later reserve
  uint64_t code_bytes = 0;
};

class CubinView {
 public:
  // `bytes` must outlive the view. kInvalidArgument: not a 64-bit little-endian CUDA ELF file; kDataLoss: truncated or
  // inconsistent; the message names the section.
  static Result<CubinView> Parse(std::span<const std::byte> bytes);

  // 90 for sm_90.
  uint32_t arch() const { return arch_; }
  uint32_t elf_flags() const { return elf_flags_; }
  // Whether it can be loaded: no input of a linker (nvcc -dc).
  bool is_linked() const { return is_linked_; }
  // In the order of their sections.
  const std::vector<CubinKernel>& kernels() const { return kernels_; }
  // Null if there is none of that name.
  const CubinKernel* FindKernel(std::string_view name) const;
  // Whether any kernel may call the device's printf (symbol vprintf).
  bool mentions_printf() const { return mentions_printf_; }

 private:
  uint32_t arch_ = 0;
  uint32_t elf_flags_ = 0;
  bool is_linked_ = false;
  bool mentions_printf_ = false;
  std::vector<CubinKernel> kernels_;
};

// Whether code in `bytes` may call the device's printf: the cubin or PTX text names vprintf, or a container holds such
// an entry or one that would have to be decompressed to know. False for what can be read as none of these.
bool MentionsPrintf(std::span<const std::byte> bytes);

}  // namespace tally::images
