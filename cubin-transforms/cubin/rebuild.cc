#include "cubin-transforms/cubin/rebuild.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "images/byte_reader.h"

namespace tally::cubin_transforms {
namespace {

using images::Load;

constexpr uint64_t kRoomBytes = 128;

// `bytes` new bytes are put in front of what stood at `at`.
struct Room {
  uint64_t at = 0;
  uint64_t bytes = 0;
};

// Where things of the original file are in the new one.
class Placement {
 public:
  explicit Placement(std::vector<Room> rooms) : rooms_(std::move(rooms)) {
    std::ranges::sort(rooms_, {}, &Room::at);
    sums_.push_back(0);
    for (const Room& room : rooms_) sums_.push_back(sums_.back() + room.bytes);
  }

  // Of something that begins at `offset`: room made there is in front of it.
  uint64_t Of(uint64_t offset) const {
    const auto behind = std::ranges::upper_bound(rooms_, offset, {}, &Room::at);
    return offset + sums_[static_cast<size_t>(behind - rooms_.begin())];
  }
  uint64_t total_bytes() const { return sums_.back(); }
  const std::vector<Room>& rooms() const { return rooms_; }
  // Whether room is made inside [begin, end), so that it would be torn.
  bool Tears(uint64_t begin, uint64_t end) const {
    const auto first = std::ranges::upper_bound(rooms_, begin, {}, &Room::at);
    return first != rooms_.end() && first->at < end;
  }

 private:
  std::vector<Room> rooms_;     // by `at`
  std::vector<uint64_t> sums_;  // of the bytes of all rooms before each
};

template <typename T>
void Store(std::vector<std::byte>& bytes, uint64_t at, const T& value) {
  std::memcpy(&bytes[at], &value, sizeof(value));
}

Status Overlap(std::string_view what) {
  return Status(StatusCode::kUnimplemented, fmt::format("{} overlaps a section that has to grow", what));
}

}  // namespace

Result<std::vector<std::byte>> Rebuild(std::span<const std::byte> original, const images::ElfView& elf,
                                       const SectionChanges& changes) {
  const Elf64_Ehdr& header = elf.header();
  const std::vector<images::ElfSection>& sections = elf.sections();
  std::vector<Room> rooms;
  for (const auto& [index, content] : changes.contents) {
    const images::ElfSection& section = sections[index];
    if (content.size() <= section.size) continue;
    if (section.size == 0) return std::unexpected(Overlap("nothing"));  // which side of its neighbours is it on?
    const uint64_t more = content.size() - section.size;
    rooms.push_back({section.offset + section.size, (more + kRoomBytes - 1) / kRoomBytes * kRoomBytes});
  }
  const Placement placement(std::move(rooms));
  const auto tears = [&](uint64_t offset, uint64_t bytes) { return placement.Tears(offset, offset + bytes); };
  for (const images::ElfSection& section : sections)
    if (images::HasBytes(section.type) && tears(section.offset, section.size))
      return std::unexpected(Overlap(section.name));
  const uint64_t section_table_bytes = sections.size() * sizeof(Elf64_Shdr);
  const uint64_t segment_table_bytes = uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
  if (tears(0, sizeof(header)) || tears(header.e_shoff, section_table_bytes) ||
      (header.e_phnum != 0 && tears(header.e_phoff, segment_table_bytes)))
    return std::unexpected(Overlap("a table"));

  std::vector<std::byte> file(original.size() + placement.total_bytes());
  uint64_t copied = 0, shift = 0;
  for (const Room& room : placement.rooms()) {
    std::copy_n(&original[copied], room.at - copied, &file[copied + shift]);
    copied = room.at;
    shift += room.bytes;
  }
  std::copy(original.begin() + static_cast<std::ptrdiff_t>(copied), original.end(),
            file.begin() + static_cast<std::ptrdiff_t>(copied + shift));

  Elf64_Ehdr new_header = header;
  new_header.e_shoff = placement.Of(header.e_shoff);
  if (header.e_phnum != 0) new_header.e_phoff = placement.Of(header.e_phoff);
  Store(file, 0, new_header);
  for (size_t i = 0; i < sections.size(); ++i) {
    auto raw = Load<Elf64_Shdr>(original, header.e_shoff + i * sizeof(Elf64_Shdr));
    // Types without bytes may claim to be anywhere, also behind the file.
    if (raw.sh_type != SHT_NULL) raw.sh_offset = placement.Of(raw.sh_offset);
    if (const auto info = changes.infos.find(i); info != changes.infos.end()) raw.sh_info = info->second;
    if (const auto content = changes.contents.find(i); content != changes.contents.end()) {
      raw.sh_size = content->second.size();
      std::ranges::copy(content->second, file.begin() + static_cast<std::ptrdiff_t>(raw.sh_offset));
    }
    Store(file, new_header.e_shoff + i * sizeof(Elf64_Shdr), raw);
    if (raw.sh_type != SHT_SYMTAB) continue;
    for (const auto& [symbol, size] : changes.symbol_sizes)
      Store(file, raw.sh_offset + symbol * sizeof(Elf64_Sym) + offsetof(Elf64_Sym, st_size), size);
  }
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    auto segment = Load<Elf64_Phdr>(original, header.e_phoff + i * sizeof(Elf64_Phdr));
    const uint64_t begin = placement.Of(segment.p_offset);
    if (segment.p_filesz != 0) {
      // Room at its very end belongs to the section that it ends with.
      const uint64_t grown = placement.Of(segment.p_offset + segment.p_filesz) - begin - segment.p_filesz;
      segment.p_filesz += grown;
      segment.p_memsz += grown;
    }
    segment.p_offset = begin;
    Store(file, new_header.e_phoff + i * sizeof(Elf64_Phdr), segment);
  }
  return file;
}

}  // namespace tally::cubin_transforms
