// Sections and symbols of an ELF file in untrusted bytes. For images itself and cubin-transforms, which rewrites them;
// everybody else asks cubin.h or fat_container.h.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tally::images {

struct ElfSection {
  std::string_view name;
  uint32_t type = 0;
  uint32_t link = 0;
  uint32_t info = 0;                   // sh_info: raw, may hold more than an index in cubins
  uint64_t flags = 0;                  // sh_flags: raw, likewise
  uint64_t offset = 0;                 // in the file; of a section without bytes it means nothing
  uint64_t alignment = 0;              // of the offset
  uint64_t size = 0;                   // also of a section without bytes
  std::span<const std::byte> content;  // empty for NOBITS
};

struct ElfSymbol {
  std::string_view name;
  uint8_t type = 0;   // STT_FUNC, ...
  uint8_t other = 0;  // st_other: 0x10 marks kernels
  uint16_t section = 0;
  uint64_t value = 0;  // of a variable: its offset in the section
  uint64_t size = 0;
};

class ElfView {
 public:
  // Checks all that a reader would follow: header, both tables, every section's bytes, names, symbol tables and links.
  // `bytes` must outlive the view. kInvalidArgument: not a 64-bit little-endian CUDA ELF file; kDataLoss: inconsistent.
  static Result<ElfView> Parse(std::span<const std::byte> bytes);

  const Elf64_Ehdr& header() const { return header_; }
  const std::vector<ElfSection>& sections() const { return sections_; }
  const std::vector<ElfSymbol>& symbols() const { return symbols_; }

 private:
  Status ReadSections(std::span<const std::byte> bytes);
  Status NameSections(std::span<const std::byte> bytes);
  Status ReadSymbols(const ElfSection& table);
  bool ReadName(std::span<const std::byte> table, uint64_t offset, std::string_view& name);

  Elf64_Ehdr header_ = {};
  uint64_t name_budget_ = 0;  // bytes of names that may still be read: names may overlap, hostile ones all of them
  std::vector<ElfSection> sections_;
  std::vector<ElfSymbol> symbols_;
};

// One record of a section .nv.info or .nv.info.KERNEL.
struct NvAttribute {
  uint8_t format = 0;  // 1: no value, 2: byte, 3: half word, 4: bytes
  uint8_t id = 0;
  uint16_t value = 0;                  // of formats 2 and 3
  std::span<const std::byte> payload;  // of format 4
  std::span<const std::byte> whole;    // the record as it is in the section
};
// All records; kDataLoss if one does not fit.
Result<std::vector<NvAttribute>> ReadNvAttributes(std::span<const std::byte> section);

inline constexpr uint32_t kSectionTypeNvInfo = 0x70000000;
// Whether a section of that type has bytes in the file. Besides NOBITS, CUDA has types of its own for memory that only
// exists at run time: global, local and shared (NCCL's .nv_debug.shared reaches beyond its file), and reserved shared.
constexpr bool HasBytes(uint32_t section_type) {
  switch (section_type) {
    case SHT_NULL:
    case SHT_NOBITS:
    case 0x70000007:
    case 0x70000009:
    case 0x7000000A:
    case 0x70000015:
      return false;
    default:
      return true;
  }
}
inline constexpr std::string_view kNvInfoSection = ".nv.info";

}  // namespace tally::images
