#include "cubin-transforms/cubin/attributes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "images/byte_reader.h"
#include "images/elf_view.h"
#include "proto/device/gate_abi.h"

namespace tally::cubin_transforms {
namespace {

using images::Load;
using images::NvAttribute;

// Records seen in shipped libraries that the gate leaves true: offsets of instructions (nothing moves), counts, marks.
// NVIDIA documents none of them; the names are those that its tools print.
constexpr auto kHarmless = std::to_array<uint8_t>({
    0x01,  // PAD
    0x02,  // IMAGE_SLOT
    0x04,  // CTAIDZ_USED
    0x05,  // MAX_THREADS
    0x0A,  // PARAM_CBANK
    0x0D,  // SYNC_STACK
    0x0F,  // EXTERNS
    0x10,  // REQNTID
    0x11,  // FRAME_SIZE
    0x12,  // MIN_STACK_SIZE
    0x17,  // KPARAM_INFO
    0x19,  // CBANK_PARAM_SIZE
    0x1A,  // QUERY_NUMATTRIB
    0x1B,  // MAXREG_COUNT
    0x1C,  // EXIT_INSTR_OFFSETS
    0x1E,  // CRS_STACK_SIZE
    0x21,  // EXPLICIT_CACHING
    0x22,  // ISTYPEP_USED
    0x23,  // MAX_STACK_SIZE
    0x24,  // SUQ_USED
    0x25,  // LD_CACHEMOD_INSTR_OFFSETS
    0x26,  // LOAD_CACHE_REQUEST
    0x27,  // ATOM_SYS_INSTR_OFFSETS
    0x28,  // COOP_GROUP_INSTR_OFFSETS
    0x29,  // COOP_GROUP_MASK_REGIDS
    0x2A,  // SW1850030_WAR
    0x2B,  // WMMA_USED
    0x2C,  // HAS_PRE_V10_OBJECT
    0x2D,  // ATOMF16_EMUL_INSTR_OFFSETS
    0x2E,  // ATOM16_EMUL_INSTR_REG_MAP
    0x2F,  // REGCOUNT
    0x30,  // SW2393858_WAR
    0x31,  // INT_WARP_WIDE_INSTR_OFFSETS
    0x32,  // SHARED_SCRATCH
    0x33,  // STATISTICS
    0x34,  // INDIRECT_BRANCH_TARGETS
    0x35,  // SW2861232_WAR
    0x36,  // SW_WAR
    0x37,  // CUDA_API_VERSION
    0x38,  // NUM_MBARRIERS
    0x39,  // MBARRIER_INSTR_OFFSETS
    0x3A,  // COROUTINE_RESUME_OFFSETS
    0x3B,  // SAM_REGION_STACK_SIZE
    0x3C,  // PER_REG_TARGET_PERF_STATS
    0x3D,  // CTA_PER_CLUSTER
    0x3E,  // EXPLICIT_CLUSTER
    0x3F,  // MAX_CLUSTER_RANK
    0x40,  // INSTR_REG_MAP
    0x41,  // RESERVED_SMEM_USED
    0x42,  // RESERVED_SMEM_0_SIZE
    0x43,  // UCODE_SECTION_DATA
    0x44,  // UNUSED_LOAD_BYTE_OFFSET
    0x45,  // KPARAM_INFO_V2
    0x46,  // SYSCALL_OFFSETS
    0x47,  // SW_WAR_MEMBAR_SYS_INSTR_OFFSETS
    0x4A,  // VRC_CTA_INIT_COUNT
    0x4B,  // TOOLS_PATCH_FUNC
    0x4C,  // NUM_BARRIERS
    0x4D,  // TEXMODE_INDEPENDENT
    0x4E,  // PERF_STATISTICS
    0x50,  // SPARSE_MMA_MASK
    0x51,  // TCGEN05_1CTA_USED
    0x52,  // TCGEN05_2CTA_USED
    0x53,  // GEN_ERRBAR_AT_EXIT
    0x54,  // REG_RECONFIG
    0x55,  // ANNOTATIONS
    0x56,  // UNKNOWN_56: marks without offsets
    0x57,  // STACK_CANARY_TRAP_OFFSETS
    0x59,  // LOCAL_CTA_ASYNC_STORE_OFFSETS
    0x5A,  // MERCURY_FINALIZER_OPTIONS
    0x5C,  // SANITIZE
    0x5D,  // SYSCALLS_FALLBACK
    0x5E,  // CUDA_REQ
    0x5F,  // MERCURY_ISA_VERSION
});

template <typename T>
void Append(std::vector<std::byte>& bytes, T value) {
  const size_t at = bytes.size();
  bytes.resize(at + sizeof(value));
  std::memcpy(&bytes[at], &value, sizeof(value));
}

template <typename T>
void Store(std::vector<std::byte>& bytes, size_t at, T value) {
  std::memcpy(&bytes[at], &value, sizeof(value));
}

void AppendRecordHead(std::vector<std::byte>& bytes, uint8_t format, uint8_t id, uint16_t value) {
  Append(bytes, format);
  Append(bytes, id);
  Append(bytes, value);
}

// Words behind the record at `at`, which is the last one so far.
bool ExtendRecord(std::vector<std::byte>& bytes, size_t at, std::span<const uint32_t> words) {
  for (const uint32_t word : words) Append(bytes, word);
  const size_t length = bytes.size() - at - 4;
  if (length > UINT16_MAX) return false;
  Store(bytes, at + 2, static_cast<uint16_t>(length));
  return true;
}

// Numbers of pieces of code that the driver puts in front of a kernel's first instruction, into which they fall
// through: they prepare the bookkeeping of tensor memory, for one block or for pairs, in an older and a newer form.
bool AreKnownFragments(const NvAttribute& record) {
  if (record.id != attribute::kEntryFragments || record.format != 4 || record.payload.size() % 4 != 0) return false;
  for (size_t at = 0; at < record.payload.size(); at += 4) {
    const auto fragment = Load<uint32_t>(record.payload, at);
    if (fragment < 4 || fragment > 7) return false;
  }
  return !record.payload.empty();
}

std::vector<uint32_t> ShiftedBy(std::span<const uint32_t> offsets, uint32_t by) {
  std::vector<uint32_t> shifted(offsets.begin(), offsets.end());
  for (uint32_t& offset : shifted) offset += by;
  return shifted;
}

}  // namespace

std::string RefusalOfAttribute(uint8_t id) {
  switch (id) {
    case 0x1D:
      return "lists the instructions that read its block's index (S2RCTAID_INSTR_OFFSETS)";
    case 0x1F:
    case 0x20:
      return "launches kernels itself (CNP attribute)";
    case attribute::kEntryFragments:
      return "has entry fragments (AT_ENTRY_FRAGMENTS), beside which no gate has been tried";
    case 0x5B:
      return "counts its grid in clusters (BLOCKS_ARE_CLUSTERS)";
    default:
      return std::ranges::find(kHarmless, id) != kHarmless.end()
                 ? std::string()
                 : fmt::format("has the unknown attribute 0x{:02x}", id);
  }
}

KernelRecords ReadKernelRecords(std::span<const std::byte> section, const GateOptions& options) {
  KernelRecords kernel;
  const Result<std::vector<NvAttribute>> records = images::ReadNvAttributes(section);
  if (!records) {
    kernel.refusal = "its .nv.info cannot be read";
    return kernel;
  }
  uint32_t bank_bytes = 0, claimed_bytes = 0;
  bool has_bank = false, has_bank_bytes = false;
  for (const NvAttribute& record : *records) {
    const bool is_accepted = options.accepts_entry_fragments && AreKnownFragments(record);
    if (kernel.refusal.empty() && !is_accepted) kernel.refusal = RefusalOfAttribute(record.id);
    if (record.id == attribute::kParameter || record.id == attribute::kParameterV2) {
      if (record.format != 4 || record.payload.size() != 12) {
        kernel.refusal = "a record of a parameter has an odd size";
        break;
      }
      const auto packed = Load<uint32_t>(record.payload, 8);
      kernel.has_parameter_v2 |= record.id == attribute::kParameterV2;
      // The upper byte of the newer form is a mark (5 for pointers from sm_100 on).
      const uint32_t bytes = record.id == attribute::kParameter ? packed >> 18 : packed & 0xFFFFFF;
      ++kernel.num_parameters;
      kernel.parameter_bytes = std::max(kernel.parameter_bytes, Load<uint16_t>(record.payload, 6) + bytes);
    } else if (record.id == attribute::kParameterBankBytes) {
      if (record.format != 3 || has_bank_bytes) kernel.refusal = "odd CBANK_PARAM_SIZE";
      has_bank_bytes = true;
      claimed_bytes = record.value;
    } else if (record.id == attribute::kParameterBank) {
      if (record.format != 4 || record.payload.size() != 8 || has_bank) {
        kernel.refusal = "odd PARAM_CBANK";
        break;
      }
      has_bank = true;
      kernel.bank_symbol = Load<uint32_t>(record.payload, 0);
      kernel.bank_offset = Load<uint16_t>(record.payload, 4);
      bank_bytes = Load<uint16_t>(record.payload, 6);
    } else if (record.id == attribute::kIndirectTargets) {
      // Branches through a register, and where each may lead: {u32 branch, u16, u16, u32 count, u32 targets ...}.
      for (size_t at = 0; at + 12 <= record.payload.size();) {
        const auto count = Load<uint32_t>(record.payload, at + 8);
        at += 12;
        for (uint32_t i = 0; i < count && at + 4 <= record.payload.size(); ++i, at += 4)
          if (Load<uint32_t>(record.payload, at) < kInstructionBytes && kernel.refusal.empty())
            kernel.refusal = "an indirect branch leads to the first instruction";
      }
    }
  }
  kernel.has_bank = has_bank;
  kernel.parameter_bytes = std::max({kernel.parameter_bytes, bank_bytes, claimed_bytes});
  if (kernel.refusal.empty() && (has_bank != has_bank_bytes || (has_bank && bank_bytes != claimed_bytes)))
    kernel.refusal = "PARAM_CBANK and CBANK_PARAM_SIZE contradict each other";
  if (kernel.refusal.empty() && !has_bank && kernel.num_parameters != 0) kernel.refusal = "parameters without a place";
  return kernel;
}

Result<std::vector<std::byte>> AddGateRecords(std::span<const std::byte> section, const KernelRecords& kernel,
                                              const GateTemplate& gate, const GateRecords& added) {
  const Result<std::vector<NvAttribute>> records = images::ReadNvAttributes(section);
  if (!records) return std::unexpected(records.error());
  const auto too_long = [] { return Error(StatusCode::kOutOfRange, "a record of .nv.info would become too long"); };
  const uint32_t all_bytes = added.hidden_offset + sizeof(device::GateParameters);
  const std::vector<uint32_t> exits = ShiftedBy(gate.exits, added.gate_at);
  const std::vector<uint32_t> warp_wide = ShiftedBy(gate.warp_wide, added.gate_at);

  std::vector<std::byte> content;
  content.reserve(section.size() + 256);
  const auto add_words = [&](uint8_t id, std::span<const uint32_t> words) {
    AppendRecordHead(content, 4, id, 0);
    return ExtendRecord(content, content.size() - 4, words);
  };
  const auto add_parameter = [&] {
    AppendRecordHead(content, 4, kernel.has_parameter_v2 ? attribute::kParameterV2 : attribute::kParameter, 12);
    Append(content, uint32_t{0});
    Append(content, static_cast<uint16_t>(kernel.num_parameters));
    Append(content, static_cast<uint16_t>(added.hidden_offset));
    constexpr uint32_t kBytes = sizeof(device::GateParameters);
    Append(content, kernel.has_parameter_v2 ? kBytes : kBytes << 18 | gate.parameter_bits);
  };

  bool has_parameter = false, has_exits = false, has_warp_wide = false, has_masks = false;
  bool has_stack = false, has_ctaid_z = false;
  for (const NvAttribute& record : *records) {
    // The last parameter's record is the first.
    if ((record.id == attribute::kParameter || record.id == attribute::kParameterV2) && !has_parameter) {
      add_parameter();
      has_parameter = true;
    }
    const size_t at = content.size();
    content.insert(content.end(), record.whole.begin(), record.whole.end());
    bool fits = true;
    switch (record.id) {
      case attribute::kParameterBankBytes:
        Store(content, at + 2, static_cast<uint16_t>(all_bytes));
        break;
      case attribute::kParameterBank:
        Store(content, at + 10, static_cast<uint16_t>(all_bytes));
        break;
      case attribute::kExits:
        if (!std::exchange(has_exits, true)) fits = ExtendRecord(content, at, exits);
        break;
      case attribute::kWarpWide:
        if (!std::exchange(has_warp_wide, true)) fits = ExtendRecord(content, at, warp_wide);
        break;
      case attribute::kWarpWideMasks:
        if (!std::exchange(has_masks, true)) fits = ExtendRecord(content, at, gate.masks);
        break;
      case attribute::kStackBytes:
        has_stack = true;
        break;
      case attribute::kCtaidZUsed:
        has_ctaid_z = true;
        break;
      default:
        break;
    }
    if (!fits) return too_long();
  }
  if (!has_parameter) add_parameter();
  if (!kernel.has_bank) {
    AppendRecordHead(content, 3, attribute::kParameterBankBytes, static_cast<uint16_t>(all_bytes));
    AppendRecordHead(content, 4, attribute::kParameterBank, 8);
    Append(content, added.bank_symbol);
    Append(content, static_cast<uint16_t>(added.bank_offset));
    Append(content, static_cast<uint16_t>(all_bytes));
  }
  if (!has_masks && !add_words(attribute::kWarpWideMasks, gate.masks)) return too_long();
  if (!has_warp_wide && !add_words(attribute::kWarpWide, warp_wide)) return too_long();
  if (!has_exits && !add_words(attribute::kExits, exits)) return too_long();
  if (gate.needs_stack_record && !has_stack) {
    AppendRecordHead(content, 4, attribute::kStackBytes, 4);
    Append(content, uint32_t{0});
  }
  if (gate.reads_ctaid_z && !has_ctaid_z) AppendRecordHead(content, 1, attribute::kCtaidZUsed, 0);
  return content;
}

}  // namespace tally::cubin_transforms
