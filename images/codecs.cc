#include "images/codecs.h"

#include <lz4.h>
#include <zstd.h>

#include <cstring>
#include <limits>
#include <utility>

#include "images/byte_reader.h"

namespace tally::images {
namespace {

Status Broken(std::string what) { return Status(StatusCode::kDataLoss, "fat binary entry: " + std::move(what)); }

Result<std::vector<std::byte>> DecompressZstd(const FatEntry& entry) {
  std::vector<std::byte> out(entry.uncompressed_bytes);
  const size_t size = ZSTD_decompress(out.data(), out.size(), entry.payload.data(), entry.payload.size());
  if (ZSTD_isError(size)) return std::unexpected(Broken(std::string("zstd: ") + ZSTD_getErrorName(size)));
  if (size != out.size()) return std::unexpected(Broken("zstd data is shorter than its header says"));
  return out;
}

Result<std::vector<std::byte>> DecompressLz4(const FatEntry& entry) {
  constexpr size_t kMaxBytes = std::numeric_limits<int>::max();
  if (entry.payload.size() > kMaxBytes || entry.uncompressed_bytes > kMaxBytes)
    return std::unexpected(Broken("LZ4 block is too large"));
  std::vector<std::byte> out(entry.uncompressed_bytes);
  const int size =
      LZ4_decompress_safe(reinterpret_cast<const char*>(entry.payload.data()), reinterpret_cast<char*>(out.data()),
                          static_cast<int>(entry.payload.size()), static_cast<int>(out.size()));
  if (size < 0) return std::unexpected(Broken("LZ4 data is corrupt"));
  if (static_cast<size_t>(size) != out.size())
    return std::unexpected(Broken("LZ4 data is shorter than its header says"));
  return out;
}

}  // namespace

Result<std::vector<std::byte>> DecompressEntry(const FatEntry& entry, size_t max_bytes) {
  if (entry.uncompressed_bytes > max_bytes)
    return Error(StatusCode::kResourceExhausted, "fat binary entry claims " + std::to_string(entry.uncompressed_bytes) +
                                                     " bytes, more than the limit of " + std::to_string(max_bytes));
  if (entry.compression != Compression::kStored)
    if (const Status checked = CheckExpansion(entry); !checked.ok()) return std::unexpected(checked);
  switch (entry.compression) {
    case Compression::kStored:
      return std::vector<std::byte>(entry.payload.begin(), entry.payload.end());
    case Compression::kZstd:
      return DecompressZstd(entry);
    case Compression::kLz4:
      return DecompressLz4(entry);
    case Compression::kUnknown:
      break;
  }
  return Error(StatusCode::kUnimplemented, "fat binary entry is compressed in an unknown way");
}

Result<std::string> DecompressPtx(const FatEntry& entry, size_t max_bytes) {
  if (entry.kind != FatEntryKind::kPtx) return Error(StatusCode::kInvalidArgument, "fat binary entry is not PTX");
  Result<std::vector<std::byte>> bytes = DecompressEntry(entry, max_bytes);
  if (!bytes) return std::unexpected(std::move(bytes.error()));
  std::string_view text = AsText(*bytes);
  return std::string(text.substr(0, text.find('\0')));
}

}  // namespace tally::images
