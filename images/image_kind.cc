#include "images/image_kind.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "images/byte_reader.h"
#include "images/elf_view.h"

namespace tally::images {
namespace {

// As nvcc lays it out in .nvFatBinSegment.
struct FatSegment {
  uint32_t magic;
  uint32_t version;
  const void* container;
  const void* filename_or_prelinked;  // version 2: NULL-terminated array of containers
};
static_assert(sizeof(FatSegment) == 24);

template <typename T>
T LoadAt(const void* image, uint64_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(image) + offset, sizeof(value));
  return value;
}

bool IsTextByte(unsigned char c) { return (c >= ' ' && c <= '~') || (c >= '\t' && c <= '\r'); }

Result<size_t> Limited(uint64_t size, const char* what) {
  if (size <= kMaxImageBytes) return static_cast<size_t>(size);
  return Error(StatusCode::kOutOfRange, std::string(what) + " claims " + std::to_string(size) + " bytes");
}

Result<size_t> CubinSize(const void* image) {
  const auto header = LoadAt<Elf64_Ehdr>(image, 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    return Error(StatusCode::kInvalidArgument, "ELF image is not 64-bit little-endian");
  const bool bad_sections = header.e_shoff != 0 && header.e_shentsize != sizeof(Elf64_Shdr);
  const bool bad_segments = header.e_phnum != 0 && header.e_phentsize != sizeof(Elf64_Phdr);
  if (bad_sections || bad_segments)
    return Error(StatusCode::kInvalidArgument, "ELF image has tables of an unknown format");
  if (header.e_shoff == 0) return Error(StatusCode::kInvalidArgument, "ELF image has no sections");
  uint64_t end = sizeof(header);
  if (header.e_phnum != 0) {
    if (header.e_phoff > kMaxImageBytes) return Error(StatusCode::kOutOfRange, "ELF image has tables beyond the limit");
    end = std::max(end, header.e_phoff + uint64_t{header.e_phnum} * sizeof(Elf64_Phdr));
  }
  if (header.e_shoff > kMaxImageBytes) return Error(StatusCode::kOutOfRange, "ELF image has tables beyond the limit");
  // With very many sections the count stands in the first one.
  uint64_t num_sections = header.e_shnum;
  if (num_sections == 0) num_sections = LoadAt<Elf64_Shdr>(image, header.e_shoff).sh_size;
  if (num_sections > kMaxImageBytes / sizeof(Elf64_Shdr))
    return Error(StatusCode::kOutOfRange, "ELF image has too many sections");
  end = std::max(end, header.e_shoff + num_sections * sizeof(Elf64_Shdr));
  for (uint64_t i = 0; i < num_sections; ++i) {
    const auto section = LoadAt<Elf64_Shdr>(image, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (!HasBytes(section.sh_type)) continue;
    if (!IsInside(section.sh_offset, section.sh_size, kMaxImageBytes))
      return Error(StatusCode::kOutOfRange, "ELF image has a section beyond the limit");
    end = std::max(end, section.sh_offset + section.sh_size);
  }
  return Limited(end, "ELF image");
}

}  // namespace

ImageKind KindOfImage(std::span<const std::byte> bytes) {
  if (bytes.size() >= 4) {
    switch (const auto magic = Load<uint32_t>(bytes, 0); magic) {
      case kFatSegmentMagic:
        return ImageKind::kFatSegment;
      case kFatContainerMagic:
        return ImageKind::kFatContainer;
      default:
        if (std::memcmp(&magic, ELFMAG, SELFMAG) == 0) return ImageKind::kCubin;
    }
  }
  const std::string_view text = AsText(bytes.first(std::min<size_t>(bytes.size(), 4)));
  const size_t length = std::min(text.find('\0'), text.size());
  if (length == 0) return ImageKind::kUnknown;
  for (const char c : text.substr(0, length))
    if (!IsTextByte(static_cast<unsigned char>(c))) return ImageKind::kUnknown;
  return ImageKind::kPtxText;
}

ImageKind KindOfImageAt(const void* image) {
  const auto* bytes = static_cast<const std::byte*>(image);
  // Text may be shorter than a magic number, so that no byte behind a NUL is read. No magic number holds a NUL.
  size_t size = 0;
  while (size < 4 && bytes[size] != std::byte{0}) ++size;
  return KindOfImage({bytes, size});
}

Result<size_t> ImageSizeFromPointer(const void* image) {
  if (image == nullptr) return Error(StatusCode::kInvalidArgument, "image is a null pointer");
  switch (KindOfImageAt(image)) {
    case ImageKind::kFatContainer: {
      const auto header_bytes = LoadAt<uint16_t>(image, 6);
      const auto payload_bytes = LoadAt<uint64_t>(image, 8);
      if (header_bytes < 16) return Error(StatusCode::kInvalidArgument, "fat binary has a header that is too short");
      if (payload_bytes > kMaxImageBytes) return Limited(payload_bytes, "fat binary");
      return Limited(header_bytes + payload_bytes, "fat binary");
    }
    case ImageKind::kCubin:
      return CubinSize(image);
    case ImageKind::kPtxText: {
      const size_t length = strnlen(static_cast<const char*>(image), kMaxImageBytes);
      if (length == kMaxImageBytes) return Error(StatusCode::kOutOfRange, "PTX text has no end");
      return length + 1;
    }
    case ImageKind::kFatSegment:
      return Error(StatusCode::kInvalidArgument, "a fat binary segment has no size of its own: ask for its containers");
    case ImageKind::kUnknown:
      break;
  }
  return Error(StatusCode::kInvalidArgument, "image is neither a fat binary, nor a cubin, nor PTX text");
}

Result<std::vector<const void*>> ContainersOfSegment(const void* segment) {
  if (segment == nullptr || KindOfImageAt(segment) != ImageKind::kFatSegment)
    return Error(StatusCode::kInvalidArgument, "not a fat binary segment");
  const auto fields = LoadAt<FatSegment>(segment, 0);
  if (fields.version != 1 && fields.version != 2)
    return Error(StatusCode::kInvalidArgument,
                 "fat binary segment has the unknown version " + std::to_string(fields.version));
  std::vector<const void*> containers;
  if (fields.container != nullptr) containers.push_back(fields.container);
  if (fields.version == 2 && fields.filename_or_prelinked != nullptr) {
    constexpr size_t kMaxPrelinked = 65536;  // one per object file linked with -rdc=true
    for (size_t i = 0;; ++i) {
      const auto* const container = LoadAt<const void*>(fields.filename_or_prelinked, i * sizeof(void*));
      if (container == nullptr) break;
      if (i == kMaxPrelinked) return Error(StatusCode::kOutOfRange, "fat binary segment has too many containers");
      containers.push_back(container);
    }
  }
  if (containers.empty()) return Error(StatusCode::kInvalidArgument, "fat binary segment has no container");
  for (const void* container : containers)
    if (KindOfImageAt(container) != ImageKind::kFatContainer)
      return Error(StatusCode::kInvalidArgument, "fat binary segment points at something that is no container");
  return containers;
}

}  // namespace tally::images
