#include "cubin-transforms/cubin/kernels.h"

#include <algorithm>
#include <unordered_map>

#include "cubin-transforms/gate/gate_template.h"
#include "images/byte_reader.h"

namespace tally::cubin_transforms {
namespace {

using images::ElfSection;
using images::ElfSymbol;
using images::ElfView;
using images::Load;

constexpr uint8_t kSymbolIsKernel = 0x10;  // in st_other

bool IsKernel(const ElfSymbol& symbol) {
  return symbol.type == STT_FUNC && (symbol.other & kSymbolIsKernel) != 0 && symbol.section != SHN_UNDEF;
}

// Of sections that only describe, relocations say nothing about what the code does.
bool IsDescription(const ElfSection& section) {
  for (const std::string_view prefix : {".debug", ".nv_debug", ".nv.info", ".nv.merc", ".nv.capmerc", ".nv.callgraph"})
    if (section.name.starts_with(prefix)) return true;
  return false;
}

// Kernels whose blocks wait for kernels on other GPUs: stopped in part, they might wait for each other for ever.
// Nothing in a cubin says so but the names that libraries give them: NCCL, NVSHMEM, PyTorch's symmetric memory, vLLM.
bool TalksToOtherDevices(std::string_view kernel) {
  constexpr std::string_view kNames[] = {"nccl", "nvshmem", "symmetric_memory", "intra_node_comm",
                                         "cross_device_reduce"};
  return std::ranges::any_of(kNames, [&](auto name) { return kernel.find(name) != std::string_view::npos; });
}

// What relocations reveal, by section and by symbol.
struct Relocated {
  std::vector<bool> first_instructions;  // of the sections
  std::vector<bool> taken_symbols;       // whose addresses other code or data holds
};

Relocated ReadRelocations(const ElfView& elf) {
  Relocated found{std::vector<bool>(elf.sections().size()), std::vector<bool>(elf.symbols().size())};
  for (const ElfSection& section : elf.sections()) {
    if (section.type != SHT_REL && section.type != SHT_RELA) continue;
    const size_t entry_bytes = section.type == SHT_REL ? sizeof(Elf64_Rel) : sizeof(Elf64_Rela);
    const size_t target = section.info & 0xFFFFFF;
    if (target >= elf.sections().size()) continue;
    const bool is_description = IsDescription(elf.sections()[target]);
    for (uint64_t at = 0; at + entry_bytes <= section.content.size(); at += entry_bytes) {
      const auto relocation = Load<Elf64_Rel>(section.content, at);
      if (relocation.r_offset < kInstructionBytes) found.first_instructions[target] = true;
      const size_t symbol = ELF64_R_SYM(relocation.r_info);
      if (is_description || symbol >= elf.symbols().size()) continue;
      // Within its own code the symbol stands for places inside: return addresses, jump tables. Not so offset 0.
      const bool is_own = elf.symbols()[symbol].section == target;
      const bool is_start =
          section.type == SHT_RELA && Load<Elf64_Rela>(section.content, at).r_addend < int64_t{kInstructionBytes};
      if (!is_own || is_start) found.taken_symbols[symbol] = true;
    }
  }
  return found;
}

}  // namespace

uint32_t ArchOf(const ElfView& elf) {
  constexpr uint8_t kAbiOfCuda13 = 0x41;  // see images/cubin.cc
  const Elf64_Ehdr& header = elf.header();
  return header.e_ident[EI_OSABI] == kAbiOfCuda13 ? (header.e_flags >> 8) & 0xFFFF : header.e_flags & 0xFF;
}

std::vector<KernelParts> FindKernels(const ElfView& elf) {
  const std::vector<ElfSection>& sections = elf.sections();
  const std::vector<ElfSymbol>& symbols = elf.symbols();
  std::unordered_map<std::string_view, size_t> by_name;
  std::vector<bool> is_name_twice(sections.size());
  for (size_t i = 0; i < sections.size(); ++i) {
    const auto [found, is_new] = by_name.emplace(sections[i].name, i);
    if (!is_new) is_name_twice[found->second] = true;
  }
  const auto section_of = [&](std::string_view prefix, std::string_view kernel) {
    std::string name(prefix);
    const auto found = by_name.find(name += kernel);
    return found == by_name.end() || is_name_twice[found->second] ? size_t{0} : found->second;
  };
  const Relocated relocated = ReadRelocations(elf);
  std::vector<size_t> kernels_of_section(sections.size());
  for (const ElfSymbol& symbol : symbols)
    if (IsKernel(symbol) && symbol.section < sections.size()) ++kernels_of_section[symbol.section];

  std::vector<KernelParts> kernels;
  for (size_t i = 0; i < symbols.size(); ++i) {
    const ElfSymbol& symbol = symbols[i];
    if (!IsKernel(symbol)) continue;
    KernelParts& kernel = kernels.emplace_back();
    kernel.name = symbol.name;
    kernel.symbol = i;
    kernel.text = symbol.section;
    kernel.records = section_of(".nv.info.", symbol.name);
    kernel.constants = section_of(".nv.constant0.", symbol.name);
    std::string& refusal = kernel.refusal;
    if (symbol.section >= sections.size() || sections[symbol.section].type != SHT_PROGBITS) {
      refusal = "its code is not in a section of its own";
      continue;
    }
    const ElfSection& text = sections[symbol.section];
    if (kernel.records == 0 || kernel.constants == 0) {
      refusal = "it has no .nv.info or .nv.constant0 of its own";
    } else if (sections[kernel.records].type != images::kSectionTypeNvInfo ||
               sections[kernel.constants].type != SHT_PROGBITS) {
      refusal = "its .nv.info or .nv.constant0 is of an odd type";
    } else if (kernels_of_section[symbol.section] != 1) {
      refusal = "its code shares a section with another kernel's";
    } else if (symbol.value != 0) {
      refusal = "it does not begin where its section begins";
    } else if (text.size < 2 * kInstructionBytes || text.size % kInstructionBytes != 0 || text.size >= UINT32_MAX) {
      refusal = "its code has an odd size";
    } else if (relocated.first_instructions[symbol.section]) {
      refusal = "its first instruction is relocated";
    } else if (TalksToOtherDevices(symbol.name)) {
      refusal = "it communicates with other GPUs, by its name";
    } else if (relocated.taken_symbols[i]) {
      refusal = "its address is taken (launched by the GPU itself?)";
    }
  }
  return kernels;
}

}  // namespace tally::cubin_transforms
