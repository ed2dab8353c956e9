#include "images/program_file.h"

#include <elf.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

#include "images/byte_reader.h"
#include "images/image_kind.h"

namespace tally::images {
namespace {

using Bytes = std::span<const std::byte>;

std::unexpected<Status> Inconsistent(const char* what) {
  return Error(StatusCode::kDataLoss, std::string("the ELF file is inconsistent: ") + what);
}

constexpr size_t kLongestText = 4096;

// The text at `offset` up to its NUL; empty if that is outside.
std::string_view TextAt(Bytes table, uint64_t offset) {
  if (offset >= table.size()) return {};
  const std::string_view rest = AsText(table.subspan(offset)).substr(0, kLongestText);
  const size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

Status ReadSegments(Bytes bytes, const Elf64_Ehdr& header, ProgramFile* file) {
  if (header.e_phnum == 0) return OkStatus();
  if (header.e_phentsize != sizeof(Elf64_Phdr) ||
      !IsInside(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr), bytes.size())) {
    return Inconsistent("its segments").error();
  }
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = Load<Elf64_Phdr>(bytes, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment.p_type != PT_INTERP && segment.p_type != PT_DYNAMIC) continue;
    if (!IsInside(segment.p_offset, segment.p_filesz, bytes.size())) return Inconsistent("a segment").error();
    const Bytes content = bytes.subspan(segment.p_offset, segment.p_filesz);
    if (segment.p_type == PT_INTERP) file->loader = TextAt(content, 0);
    if (segment.p_type != PT_DYNAMIC) continue;
    // A static program that may lie anywhere has such a segment, too, but needs nothing.
    for (uint64_t at = 0; IsInside(at, sizeof(Elf64_Dyn), content.size()); at += sizeof(Elf64_Dyn)) {
      file->is_dynamic |= Load<Elf64_Dyn>(content, at).d_tag == DT_NEEDED;
    }
  }
  return OkStatus();
}

// The chain of what is needed of one library. `budget`: records that may still be read, since chains may overlap.
GlibcVersion HighestOf(Bytes needs, uint64_t at, uint16_t count, Bytes names, size_t* budget) {
  GlibcVersion highest;
  for (; count > 0 && *budget > 0 && IsInside(at, sizeof(Elf64_Vernaux), needs.size()); --count, --*budget) {
    const auto need = Load<Elf64_Vernaux>(needs, at);
    highest = std::max(highest, ParseGlibcVersion(TextAt(names, need.vna_name)));
    if (need.vna_next == 0) break;
    at += need.vna_next;
  }
  return highest;
}

Status ReadVersionNeeds(Bytes bytes, const Elf64_Ehdr& header, ProgramFile* file) {
  if (header.e_shnum == 0) return OkStatus();
  if (header.e_shentsize != sizeof(Elf64_Shdr) ||
      !IsInside(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr), bytes.size())) {
    return Inconsistent("its sections").error();
  }
  const auto section = [&](uint64_t i) { return Load<Elf64_Shdr>(bytes, header.e_shoff + i * sizeof(Elf64_Shdr)); };
  const auto content = [&](const Elf64_Shdr& of) {
    return IsInside(of.sh_offset, of.sh_size, bytes.size()) ? bytes.subspan(of.sh_offset, of.sh_size) : Bytes();
  };
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr needs_section = section(i);
    if (needs_section.sh_type != SHT_GNU_verneed || needs_section.sh_link >= header.e_shnum) continue;
    const Bytes needs = content(needs_section);
    const Bytes names = content(section(needs_section.sh_link));
    size_t budget = needs.size() / sizeof(Elf64_Vernaux);
    for (uint64_t at = 0; IsInside(at, sizeof(Elf64_Verneed), needs.size());) {
      const auto library = Load<Elf64_Verneed>(needs, at);
      const GlibcVersion highest = HighestOf(needs, at + library.vn_aux, library.vn_cnt, names, &budget);
      file->needs_glibc = std::max(file->needs_glibc, highest);
      if (library.vn_next < sizeof(Elf64_Verneed)) break;
      at += library.vn_next;
    }
    break;  // there is one at most
  }
  return OkStatus();
}

// Containers lie in .nv_fatbin, but not only there (cuFFT keeps most in .ldata): they are looked for by their magic.
std::vector<DeviceCode> FindDeviceCode(Bytes bytes) {
  constexpr uint32_t kMagic = kFatContainerMagic;
  std::set<DeviceCode> found;
  for (size_t at = 0; at < bytes.size();) {
    const void* const hit = ::memmem(bytes.data() + at, bytes.size() - at, &kMagic, sizeof(kMagic));
    if (hit == nullptr) break;
    at = static_cast<size_t>(static_cast<const std::byte*>(hit) - bytes.data());
    const auto entries = ReadFatContainer(bytes.subspan(at));
    const auto size = FatContainerBytes(bytes.subspan(at));
    if (!entries || !size) {  // the magic by chance
      ++at;
      continue;
    }
    for (const FatEntry& entry : *entries) {
      const bool is_specific = (entry.flags & fat_flag::kArchSpecific) != 0;
      const bool is_of_family = (entry.flags & fat_flag::kFamilySpecific) != 0;
      found.insert({entry.kind, entry.arch, is_specific ? 'a' : is_of_family ? 'f' : '\0'});
    }
    at += std::max(*size, sizeof(kMagic));
  }
  return {found.begin(), found.end()};
}

}  // namespace

GlibcVersion ParseGlibcVersion(std::string_view text) {
  constexpr std::string_view kPrefix = "GLIBC_";
  if (!text.starts_with(kPrefix)) return {};
  text.remove_prefix(kPrefix.size());
  GlibcVersion version;
  const char* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return {};
  return std::from_chars(major.ptr + 1, end, version.minor).ec == std::errc() ? version : GlibcVersion();
}

Result<ProgramFile> ReadProgramFile(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Elf64_Ehdr)) return Error(StatusCode::kInvalidArgument, "no ELF file");
  const auto header = Load<Elf64_Ehdr>(bytes, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return Error(StatusCode::kInvalidArgument, "no ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != EM_X86_64) {
    return Error(StatusCode::kInvalidArgument, "no 64-bit ELF file for x86");
  }
  ProgramFile file;
  if (Status status = ReadSegments(bytes, header, &file); !status.ok()) return std::unexpected(status);
  if (Status status = ReadVersionNeeds(bytes, header, &file); !status.ok()) return std::unexpected(status);
  file.device_code = FindDeviceCode(bytes);
  return file;
}

}  // namespace tally::images
