#include "images/kernel_identity.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "images/byte_reader.h"
#include "images/elf_view.h"

namespace tally::images {
namespace {

constexpr uint8_t kSymbolIsKernel = 0x10;
constexpr uint8_t kSymbolIsShared = 0x40;
constexpr std::string_view kTextPrefix = ".text.";
constexpr std::string_view kConstantPrefix = ".nv.constant";
constexpr std::string_view kRelocationPrefix = ".rela.text.";
constexpr std::string_view kShortRelocationPrefix = ".rel.text.";
constexpr std::string_view kSharedPrefix = ".nv.shared.";

// With its length, so that no two lists of parts run together into the same bytes.
void Append(std::vector<std::byte>& identity, std::span<const std::byte> part) {
  const uint64_t size = part.size();
  const auto* begin = reinterpret_cast<const std::byte*>(&size);
  identity.insert(identity.end(), begin, begin + sizeof(size));
  identity.insert(identity.end(), part.begin(), part.end());
}
void Append(std::vector<std::byte>& identity, std::string_view text) {
  Append(identity, std::as_bytes(std::span(text)));
}

// ".nv.constant2.NAME" belongs to NAME; empty for what belongs to the whole file.
std::string_view OwnerOfConstants(std::string_view section) {
  if (!section.starts_with(kConstantPrefix)) return {};
  const size_t dot = section.find('.', kConstantPrefix.size());
  return dot == std::string_view::npos ? std::string_view() : section.substr(dot + 1);
}

// Functions that the driver brings along, wherever the code is.
bool IsOfTheDriver(const ElfSymbol& symbol) {
  return symbol.section == SHN_UNDEF && symbol.type == STT_FUNC &&
         (symbol.name == "vprintf" || symbol.name == "malloc" || symbol.name == "free" ||
          symbol.name == "__assertfail");
}

// First values that a linker fills in: what they are cannot be read here.
bool HasLinkedVariables(const ElfView& elf) {
  return std::any_of(elf.sections().begin(), elf.sections().end(), [](const ElfSection& section) {
    return (section.type == SHT_RELA || section.type == SHT_REL) &&
           (section.name.find(".nv.global") != std::string_view::npos ||
            section.name.find(kConstantPrefix) != std::string_view::npos);
  });
}

// Appends what the relocations of a kernel's code say; false if they lead out of what is understood.
bool AppendRelocations(const ElfView& elf, const ElfSection& relocations, std::string_view kernel, bool knows_values,
                       size_t max_bytes, std::vector<std::byte>& identity) {
  if (relocations.content.size() % sizeof(Elf64_Rela) != 0) return false;
  std::vector<Elf64_Rela> ordered;  // a linker writes them in another order
  for (uint64_t at = 0; at < relocations.content.size(); at += sizeof(Elf64_Rela))
    ordered.push_back(Load<Elf64_Rela>(relocations.content, at));
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const Elf64_Rela& a, const Elf64_Rela& b) { return a.r_offset < b.r_offset; });
  for (const Elf64_Rela& relocation : ordered) {
    if (identity.size() > max_bytes) return false;
    const uint64_t index = ELF64_R_SYM(relocation.r_info);
    if (index >= elf.symbols().size()) return false;
    const ElfSymbol& symbol = elf.symbols()[index];
    // `extern __shared__`: whatever its name, the memory that the launch asks for.
    if (symbol.section == SHN_UNDEF && symbol.other == kSymbolIsShared && symbol.size == 0) continue;
    const uint64_t numbers[] = {relocation.r_offset, ELF64_R_TYPE(relocation.r_info),
                                static_cast<uint64_t>(relocation.r_addend)};
    const bool is_place_in_itself = symbol.type == STT_FUNC && symbol.name == kernel;
    if (IsOfTheDriver(symbol) || is_place_in_itself) {
      Append(identity, std::as_bytes(std::span(numbers)));
      Append(identity, symbol.name);
      continue;
    }
    if (symbol.section == SHN_UNDEF || symbol.section >= elf.sections().size()) return false;
    const std::string_view section = elf.sections()[symbol.section].name;
    // Gone in a linked file, where the code has the offset.
    if (section.starts_with(kSharedPrefix) && section.substr(kSharedPrefix.size()) == kernel) continue;
    const bool is_variable = section.starts_with(".nv.global") ||
                             (section.starts_with(kConstantPrefix) && OwnerOfConstants(section).empty());
    if (!is_variable || !knows_values || symbol.name.empty()) return false;
    Append(identity, std::as_bytes(std::span(numbers)));
    Append(identity, section);
    Append(identity, symbol.name);
    Append(identity, std::as_bytes(std::span(&symbol.size, 1)));
    // What it is at the beginning, if that is not zero.
    const std::span<const std::byte> values = elf.sections()[symbol.section].content;
    if (!values.empty()) {
      if (!IsInside(symbol.value, symbol.size, values.size())) return false;
      Append(identity, values.subspan(symbol.value, symbol.size));
    }
  }
  return true;
}

}  // namespace

Result<std::vector<KernelIdentity>> IdentifyKernels(std::span<const std::byte> cubin) {
  const Result<ElfView> elf = ElfView::Parse(cubin);
  if (!elf) return std::unexpected(elf.error());
  const std::vector<ElfSection>& sections = elf->sections();

  // Sections of a hostile file may be made of the same bytes, all of them.
  const size_t max_bytes = 2 * cubin.size();
  size_t used_bytes = 0;
  const bool knows_values = !HasLinkedVariables(*elf);

  std::vector<KernelIdentity> kernels;
  std::unordered_map<std::string_view, size_t> by_name;
  for (const ElfSymbol& symbol : elf->symbols()) {
    if (symbol.type != STT_FUNC || (symbol.other & kSymbolIsKernel) == 0) continue;
    if (symbol.section >= sections.size() || !sections[symbol.section].name.starts_with(kTextPrefix)) continue;
    const auto [found, is_new] = by_name.try_emplace(symbol.name, kernels.size());
    if (!is_new) continue;
    KernelIdentity& kernel = kernels.emplace_back();
    kernel.name = symbol.name;
    // A section of its own: one kernel's code is copied once, whatever the file claims.
    if (sections[symbol.section].name.substr(kTextPrefix.size()) != symbol.name) continue;
    Append(kernel.identity, symbol.name);
  }

  const auto num_symbol_tables = std::count_if(sections.begin(), sections.end(),
                                               [](const ElfSection& section) { return section.type == SHT_SYMTAB; });
  // Each section once, in the order of their kinds, which differs between files.
  const auto for_each_owned = [&](auto owner_of, auto use) {
    std::unordered_set<std::string_view> seen;
    for (const ElfSection& section : sections) {
      const std::string_view owner = owner_of(section.name);
      const auto found = owner.empty() ? by_name.end() : by_name.find(owner);
      if (found == by_name.end()) continue;
      KernelIdentity& kernel = kernels[found->second];
      if (kernel.identity.empty()) continue;
      // Two sections of one name: no file of a compiler, and a way to make much of little.
      used_bytes += section.content.size();
      const bool is_good = seen.insert(section.name).second && used_bytes <= max_bytes && use(section, kernel);
      if (!is_good) kernel.identity.clear();
    }
  };
  const auto after = [](std::string_view prefix) {
    return [prefix](std::string_view name) {
      return name.starts_with(prefix) ? name.substr(prefix.size()) : std::string_view();
    };
  };
  for_each_owned(after(kTextPrefix), [](const ElfSection& section, KernelIdentity& kernel) {
    Append(kernel.identity, section.content);
    return !section.content.empty();
  });
  for_each_owned(OwnerOfConstants, [](const ElfSection& section, KernelIdentity& kernel) {
    Append(kernel.identity, section.name);
    Append(kernel.identity, section.content);
    return true;
  });
  for_each_owned(after(kShortRelocationPrefix), [](const ElfSection&, KernelIdentity&) { return false; });
  for_each_owned(after(kRelocationPrefix), [&](const ElfSection& section, KernelIdentity& kernel) {
    return num_symbol_tables == 1 &&
           AppendRelocations(*elf, section, kernel.name, knows_values, max_bytes, kernel.identity);
  });
  return kernels;
}

}  // namespace tally::images
