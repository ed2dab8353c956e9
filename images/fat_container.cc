#include "images/fat_container.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "images/byte_reader.h"
#include "images/elf_view.h"

namespace tally::images {
namespace {

constexpr uint64_t kContainerHeaderBytes = 16;
constexpr uint64_t kEntryHeaderBytes = 64;

Status Broken(std::string what) { return Status(StatusCode::kDataLoss, "fat binary: " + std::move(what)); }

Compression CompressionOf(uint64_t flags, uint32_t compressed_bytes) {
  if ((flags & fat_flag::kZstd) != 0) return Compression::kZstd;
  if ((flags & fat_flag::kLz4) != 0) return Compression::kLz4;
  return compressed_bytes == 0 ? Compression::kStored : Compression::kUnknown;
}

// The entry at the start of `rest`; `total` receives its header's and padded payload's size.
Status ReadEntry(std::span<const std::byte> rest, FatEntry& entry, uint64_t& total) {
  if (rest.size() < kEntryHeaderBytes) return Broken("an entry's header is cut off");
  const auto header_bytes = Load<uint32_t>(rest, 4);
  const auto padded_bytes = Load<uint64_t>(rest, 8);
  const auto compressed_bytes = Load<uint32_t>(rest, 16);
  if (header_bytes < kEntryHeaderBytes || !IsInside(header_bytes, padded_bytes, rest.size()))
    return Broken("an entry reaches beyond the container");
  if (compressed_bytes > padded_bytes) return Broken("an entry's payload is longer than its place");
  const auto options_offset = Load<uint32_t>(rest, 20);
  if (options_offset > header_bytes) return Broken("an entry's options lie outside of its header");
  total = header_bytes + padded_bytes;
  entry.whole = rest.first(total);

  entry.kind = static_cast<FatEntryKind>(Load<uint16_t>(rest, 0));
  entry.version_minor = Load<uint16_t>(rest, 24);
  entry.version_major = Load<uint16_t>(rest, 26);
  entry.arch = Load<uint32_t>(rest, 28);
  entry.flags = Load<uint64_t>(rest, 40);
  entry.compression = CompressionOf(entry.flags, compressed_bytes);
  const bool is_stored = entry.compression == Compression::kStored;
  entry.payload = rest.subspan(header_bytes, is_stored ? padded_bytes : compressed_bytes);
  entry.uncompressed_bytes = is_stored ? padded_bytes : Load<uint64_t>(rest, 56);

  const auto name_offset = Load<uint32_t>(rest, 32);
  const auto name_bytes = Load<uint32_t>(rest, 36);
  if (!IsInside(name_offset, name_bytes, header_bytes)) return Broken("an entry's name lies outside of its header");
  entry.name = AsText(rest.subspan(name_offset, name_bytes));
  if (const size_t nul = entry.name.find('\0'); nul != std::string_view::npos) entry.name = entry.name.substr(0, nul);
  return OkStatus();
}

Status ValidatePayload(const FatEntry& entry) {
  if (entry.compression != Compression::kStored) return CheckExpansion(entry);
  if (entry.kind == FatEntryKind::kCubin) {
    if (const auto view = ElfView::Parse(entry.payload); !view) return view.error().With("fat binary entry");
  } else if (entry.kind == FatEntryKind::kPtx) {
    if (AsText(entry.payload).find('\0') == std::string_view::npos) return Broken("an entry's PTX text has no end");
  }
  return OkStatus();
}

}  // namespace

Result<size_t> FatContainerBytes(std::span<const std::byte> bytes) {
  if (bytes.size() < kContainerHeaderBytes || Load<uint32_t>(bytes, 0) != kFatContainerMagic)
    return Error(StatusCode::kInvalidArgument, "not a fat binary");
  const auto version = Load<uint16_t>(bytes, 4);
  const auto header_bytes = Load<uint16_t>(bytes, 6);
  if (version != 1)
    return Error(StatusCode::kInvalidArgument, "fat binary has the unknown version " + std::to_string(version));
  const auto payload_bytes = Load<uint64_t>(bytes, 8);
  if (header_bytes < kContainerHeaderBytes || !IsInside(header_bytes, payload_bytes, bytes.size()))
    return std::unexpected(Broken("cut off"));
  return static_cast<size_t>(header_bytes + payload_bytes);
}

Result<std::vector<FatEntry>> ReadFatContainer(std::span<const std::byte> bytes) {
  const Result<size_t> size = FatContainerBytes(bytes);
  if (!size) return std::unexpected(size.error());
  std::vector<FatEntry> entries;
  for (uint64_t at = Load<uint16_t>(bytes, 6); at < *size;) {
    FatEntry entry;
    uint64_t total = 0;
    if (Status status = ReadEntry(bytes.subspan(at, *size - at), entry, total); !status.ok())
      return std::unexpected(std::move(status));
    entries.push_back(entry);
    at += total;
  }
  return entries;
}

bool IsUsable(const FatEntry& entry, uint32_t capability) {
  // What was 10.1 is called 11.0 since CUDA 13: the two are not told apart.
  const auto family_of = [](uint32_t arch) { return arch / 10 == 11 ? 10 : arch / 10; };
  switch (entry.kind) {
    case FatEntryKind::kPtx:
      return entry.arch <= capability;
    case FatEntryKind::kCubin:
      return family_of(entry.arch) == family_of(capability) && (entry.arch <= capability || entry.arch / 10 >= 10);
    default:
      return true;
  }
}

std::vector<std::span<const std::byte>> WithoutUnusable(std::span<const std::byte> container,
                                                        std::span<const uint32_t> capabilities,
                                                        std::vector<std::byte>* header) {
  const Result<std::vector<FatEntry>> entries = ReadFatContainer(container);
  if (!entries) return {};
  std::vector<std::span<const std::byte>> pieces;
  uint64_t payload_bytes = 0;
  bool has_code = false;
  for (const FatEntry& entry : *entries) {
    const bool is_usable = std::any_of(capabilities.begin(), capabilities.end(),
                                       [&](uint32_t capability) { return IsUsable(entry, capability); });
    if (!is_usable) continue;
    has_code = has_code || entry.kind == FatEntryKind::kPtx || entry.kind == FatEntryKind::kCubin;
    payload_bytes += entry.whole.size();
    pieces.push_back(entry.whole);
  }
  if (!has_code || pieces.size() == entries->size()) return {};
  const auto header_bytes = Load<uint16_t>(container, 6);
  header->assign(container.begin(), container.begin() + header_bytes);
  std::memcpy(header->data() + 8, &payload_bytes, sizeof(payload_bytes));
  pieces.insert(pieces.begin(), *header);
  return pieces;
}

Status CheckExpansion(const FatEntry& entry) {
  constexpr uint64_t kAlways = 1 << 20;
  if (entry.uncompressed_bytes <= std::max<uint64_t>(kAlways, entry.payload.size() * kMaxExpansion)) return OkStatus();
  return Status(StatusCode::kResourceExhausted,
                "fat binary entry claims to be more than " + std::to_string(kMaxExpansion) + " times its size");
}

Result<ImageKind> ValidateImage(std::span<const std::byte> bytes) {
  const ImageKind kind = KindOfImage(bytes);
  switch (kind) {
    case ImageKind::kFatContainer: {
      const Result<std::vector<FatEntry>> entries = ReadFatContainer(bytes);
      if (!entries) return std::unexpected(entries.error());
      uint64_t expanded_bytes = 0;
      for (const FatEntry& entry : *entries) {
        if (Status status = ValidatePayload(entry); !status.ok()) return std::unexpected(std::move(status));
        expanded_bytes += entry.compression == Compression::kStored ? 0 : entry.uncompressed_bytes;
        if (expanded_bytes > kMaxImageExpandedBytes)
          return Error(StatusCode::kResourceExhausted, "fat binary claims to be more than " +
                                                           std::to_string(kMaxImageExpandedBytes) +
                                                           " bytes once it is decompressed");
      }
      return kind;
    }
    case ImageKind::kCubin:
      if (const auto view = ElfView::Parse(bytes); !view) return std::unexpected(view.error());
      return kind;
    case ImageKind::kPtxText:
      if (AsText(bytes).find('\0') == std::string_view::npos)
        return Error(StatusCode::kDataLoss, "PTX text does not end with a NUL");
      return kind;
    case ImageKind::kFatSegment:
      return Error(StatusCode::kInvalidArgument, "a fat binary segment means nothing in another process");
    case ImageKind::kUnknown:
      break;
  }
  return Error(StatusCode::kInvalidArgument, "image is neither a fat binary, nor a cubin, nor PTX text");
}

}  // namespace tally::images
