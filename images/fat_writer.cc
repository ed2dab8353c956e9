#include "images/fat_writer.h"

#include <elf.h>

#include <cstring>

#include "images/fat_container.h"
#include "images/image_kind.h"

namespace tally::images {
namespace {

constexpr uint32_t kContainerHeaderBytes = 16;
constexpr uint32_t kEntryHeaderBytes = 64;
// An empty text of options for ptxas: its offset in the header, then the text.
constexpr uint32_t kOptionsBytes = 16;
constexpr uint64_t kLinux = 0x10;

constexpr size_t PaddedTo8(size_t size) { return (size + 7) & ~size_t{7}; }

template <typename T>
void Put(std::span<std::byte> bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

struct NewEntry {
  FatEntryKind kind;
  uint32_t arch;
  uint64_t flags;
  uint16_t version_major;
  uint16_t version_minor;
  std::span<const std::byte> payload;
  size_t padded_bytes;
};

uint32_t HeaderBytes(const NewEntry& entry) {
  return kEntryHeaderBytes + (entry.kind == FatEntryKind::kPtx ? kOptionsBytes : 0);
}

// Into zeros, which stand for all that is left out: not compressed, no name. Returns what is behind the entry.
std::span<std::byte> PutEntry(std::span<std::byte> bytes, const NewEntry& entry) {
  const uint32_t header_bytes = HeaderBytes(entry);
  Put(bytes, 0, static_cast<uint16_t>(entry.kind));
  Put(bytes, 2, uint16_t{0x0101});
  Put(bytes, 4, header_bytes);
  Put(bytes, 8, uint64_t{entry.padded_bytes});
  Put(bytes, 24, entry.version_minor);
  Put(bytes, 26, entry.version_major);
  Put(bytes, 28, entry.arch);
  Put(bytes, 40, entry.flags);
  if (header_bytes > kEntryHeaderBytes) {
    Put(bytes, 20, kEntryHeaderBytes);
    Put(bytes, kEntryHeaderBytes, uint64_t{kEntryHeaderBytes + 8});
  }
  std::memcpy(bytes.data() + header_bytes, entry.payload.data(), entry.payload.size());
  return bytes.subspan(header_bytes + entry.padded_bytes);
}

}  // namespace

std::vector<std::byte> WriteCubinWithPtx(std::span<const std::byte> cubin, uint32_t arch, std::string_view ptx,
                                         const PtxHead& head) {
  constexpr unsigned char kAbiOfCuda13 = 0x41;
  const bool is_of_cuda13 = cubin.size() > EI_OSABI && std::to_integer<unsigned char>(cubin[EI_OSABI]) == kAbiOfCuda13;
  const NewEntry code = {
      FatEntryKind::kCubin,   arch, fat_flag::k64Bit | kLinux, 1, static_cast<uint16_t>(is_of_cuda13 ? 8 : 7), cubin,
      PaddedTo8(cubin.size())};
  const uint64_t tied = head.suffix == 'a'   ? fat_flag::kArchSpecific
                        : head.suffix == 'f' ? fat_flag::kFamilySpecific
                                             : 0;
  const NewEntry text = {FatEntryKind::kPtx,       head.target,        fat_flag::k64Bit | kLinux | tied,
                         head.version_major,       head.version_minor, std::as_bytes(std::span(ptx)),
                         PaddedTo8(ptx.size() + 1)};  // ends with a NUL
  const uint64_t payload_bytes = HeaderBytes(code) + code.padded_bytes + HeaderBytes(text) + text.padded_bytes;
  std::vector<std::byte> container(kContainerHeaderBytes + payload_bytes);
  const std::span<std::byte> bytes(container);
  Put(bytes, 0, kFatContainerMagic);
  Put(bytes, 4, uint16_t{1});
  Put(bytes, 6, static_cast<uint16_t>(kContainerHeaderBytes));
  Put(bytes, 8, payload_bytes);
  PutEntry(PutEntry(bytes.subspan(kContainerHeaderBytes), text), code);
  return container;
}

}  // namespace tally::images
