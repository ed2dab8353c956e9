// The records of .nv.info sections by which a cubin describes its kernels, as far as the gate touches them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cubin-transforms/add_gates.h"
#include "cubin-transforms/gate/gate_template.h"

namespace tally::cubin_transforms {

namespace attribute {
inline constexpr uint8_t kCtaidZUsed = 0x04;
inline constexpr uint8_t kParameterBank = 0x0A;  // u32 symbol of the constant bank, u16 offset in it, u16 bytes
inline constexpr uint8_t kParameter = 0x17;      // u32, u16 ordinal, u16 offset, u32 bytes << 18 | bits
inline constexpr uint8_t kParameterBankBytes = 0x19;
inline constexpr uint8_t kExits = 0x1C;  // u32 offsets in the code
inline constexpr uint8_t kStackBytes = 0x1E;
inline constexpr uint8_t kWarpWide = 0x28;       // u32 offsets in the code
inline constexpr uint8_t kWarpWideMasks = 0x29;  // u32 registers
inline constexpr uint8_t kRegisters = 0x2F;      // in .nv.info: u32 symbol, u32 registers
inline constexpr uint8_t kIndirectTargets = 0x34;
inline constexpr uint8_t kParameterV2 = 0x45;     // as kParameter with plain bytes
inline constexpr uint8_t kEntryFragments = 0x4F;  // u32 each
}  // namespace attribute

// Why a kernel that carries this record must be left alone; empty if the gate cannot matter to it.
std::string RefusalOfAttribute(uint8_t id);

// What .nv.info.KERNEL says.
struct KernelRecords {
  std::string refusal;  // not empty: leave the kernel alone
  uint32_t num_parameters = 0;
  uint32_t parameter_bytes = 0;  // up to the end of the last one
  bool has_parameter_v2 = false;
  bool has_bank = false;  // both records of the parameters' place; kernels without parameters have none
  uint32_t bank_symbol = 0;
  uint32_t bank_offset = 0;
};
KernelRecords ReadKernelRecords(std::span<const std::byte> section, const GateOptions& options);

// What the gate adds to a kernel's records.
struct GateRecords {
  uint32_t hidden_offset = 0;  // of the gate's parameters among the kernel's
  uint32_t gate_at = 0;        // byte offset of the gate in the code
  uint32_t bank_symbol = 0;    // for a kernel that had no parameters
  uint32_t bank_offset = 0;
};
// The section's new content. kOutOfRange: a record would become longer than its length field can say.
Result<std::vector<std::byte>> AddGateRecords(std::span<const std::byte> section, const KernelRecords& kernel,
                                              const GateTemplate& gate, const GateRecords& added);

}  // namespace tally::cubin_transforms
