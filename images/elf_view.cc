#include "images/elf_view.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "images/byte_reader.h"

namespace tally::images {
namespace {

constexpr uint16_t kMachineCuda = 190;

Status Broken(std::string what) { return Status(StatusCode::kDataLoss, "cubin: " + std::move(what)); }

}  // namespace

Result<ElfView> ElfView::Parse(std::span<const std::byte> bytes) {
  ElfView view;
  if (bytes.size() < sizeof(Elf64_Ehdr)) return Error(StatusCode::kInvalidArgument, "too short for an ELF file");
  view.header_ = Load<Elf64_Ehdr>(bytes, 0);
  const Elf64_Ehdr& header = view.header_;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != kMachineCuda)
    return Error(StatusCode::kInvalidArgument, "not a 64-bit little-endian CUDA ELF file");
  if (header.e_phnum != 0) {
    if (header.e_phentsize != sizeof(Elf64_Phdr) ||
        !IsInside(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr), bytes.size()))
      return std::unexpected(Broken("program header table out of the file"));
    for (uint64_t i = 0; i < header.e_phnum; ++i) {
      const auto segment = Load<Elf64_Phdr>(bytes, header.e_phoff + i * sizeof(Elf64_Phdr));
      if (!IsInside(segment.p_offset, segment.p_filesz, bytes.size()))
        return std::unexpected(Broken("segment " + std::to_string(i) + " out of the file"));
    }
  }
  if (header.e_shoff == 0) return std::unexpected(Broken("no sections"));
  constexpr uint64_t kMaxNameOverlap = 16;
  view.name_budget_ = kMaxNameOverlap * bytes.size();
  if (Status status = view.ReadSections(bytes); !status.ok()) return std::unexpected(std::move(status));
  if (Status status = view.NameSections(bytes); !status.ok()) return std::unexpected(std::move(status));
  for (const ElfSection& section : view.sections_) {
    if (section.type != SHT_SYMTAB) continue;
    if (Status status = view.ReadSymbols(section); !status.ok()) return std::unexpected(std::move(status));
  }
  return view;
}

Status ElfView::ReadSections(std::span<const std::byte> bytes) {
  if (header_.e_shentsize != sizeof(Elf64_Shdr) || !IsInside(header_.e_shoff, sizeof(Elf64_Shdr), bytes.size()))
    return Broken("section header table out of the file");
  // With very many sections the count stands in the first one.
  uint64_t count = header_.e_shnum;
  if (count == 0) count = Load<Elf64_Shdr>(bytes, header_.e_shoff).sh_size;
  if (count > bytes.size() / sizeof(Elf64_Shdr) || !IsInside(header_.e_shoff, count * sizeof(Elf64_Shdr), bytes.size()))
    return Broken("section header table out of the file");
  sections_.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const auto raw = Load<Elf64_Shdr>(bytes, header_.e_shoff + i * sizeof(Elf64_Shdr));
    ElfSection& section = sections_.emplace_back();
    section.type = raw.sh_type;
    section.link = raw.sh_link;
    section.info = raw.sh_info;
    section.flags = raw.sh_flags;
    section.offset = raw.sh_offset;
    section.alignment = raw.sh_addralign;
    section.size = raw.sh_size;
    if (!HasBytes(raw.sh_type)) continue;
    if (!IsInside(raw.sh_offset, raw.sh_size, bytes.size()))
      return Broken("section " + std::to_string(i) + " out of the file");
    section.content = bytes.subspan(raw.sh_offset, raw.sh_size);
    if (section.link >= count) return Broken("section " + std::to_string(i) + " is linked to none");
  }
  return OkStatus();
}

Status ElfView::NameSections(std::span<const std::byte> bytes) {
  if (sections_.empty()) return OkStatus();
  const uint32_t index = header_.e_shstrndx == SHN_XINDEX ? sections_[0].link : header_.e_shstrndx;
  if (index >= sections_.size()) return Broken("no names of sections");
  const std::span<const std::byte> names = sections_[index].content;
  for (size_t i = 1; i < sections_.size(); ++i) {
    const auto raw = Load<Elf64_Shdr>(bytes, header_.e_shoff + i * sizeof(Elf64_Shdr));
    if (!ReadName(names, raw.sh_name, sections_[i].name))
      return Broken("section " + std::to_string(i) + " has no name");
  }
  return OkStatus();
}

Status ElfView::ReadSymbols(const ElfSection& table) {
  if (table.content.size() % sizeof(Elf64_Sym) != 0) return Broken("symbol table has an odd size");
  const std::span<const std::byte> names = sections_[table.link].content;
  for (uint64_t at = 0; at < table.content.size(); at += sizeof(Elf64_Sym)) {
    const auto raw = Load<Elf64_Sym>(table.content, at);
    ElfSymbol& symbol = symbols_.emplace_back();
    if (!ReadName(names, raw.st_name, symbol.name)) return Broken("a symbol has no name");
    symbol.type = ELF64_ST_TYPE(raw.st_info);
    symbol.other = raw.st_other;
    symbol.section = raw.st_shndx;
    symbol.value = raw.st_value;
    symbol.size = raw.st_size;
  }
  return OkStatus();
}

// A string table's entry; false if there is none, it does not end, or too much has been read.
bool ElfView::ReadName(std::span<const std::byte> table, uint64_t offset, std::string_view& name) {
  if (offset >= table.size()) return false;
  const std::string_view rest = AsText(table.subspan(offset, std::min<uint64_t>(table.size() - offset, name_budget_)));
  const size_t end = rest.find('\0');
  if (end == std::string_view::npos) return false;
  name_budget_ -= end + 1;
  name = rest.substr(0, end);
  return true;
}

Result<std::vector<NvAttribute>> ReadNvAttributes(std::span<const std::byte> section) {
  std::vector<NvAttribute> attributes;
  const auto broken = [] { return std::unexpected(Broken("a record of .nv.info does not fit into its section")); };
  for (uint64_t at = 0; at < section.size();) {
    if (!IsInside(at, 4, section.size())) return broken();
    NvAttribute attribute;
    const uint64_t begins = at;
    attribute.format = Load<uint8_t>(section, at);
    attribute.id = Load<uint8_t>(section, at + 1);
    attribute.value = Load<uint16_t>(section, at + 2);
    at += 4;
    switch (attribute.format) {
      case 1:
      case 3:
        break;
      case 2:
        attribute.value &= 0xFF;
        break;
      case 4:
        if (!IsInside(at, attribute.value, section.size())) return broken();
        attribute.payload = section.subspan(at, attribute.value);
        at += attribute.value;
        break;
      default:
        return broken();
    }
    attribute.whole = section.subspan(begins, at - begins);
    attributes.push_back(attribute);
  }
  return attributes;
}

}  // namespace tally::images
