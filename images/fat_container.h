// Fat binary containers: bounds-checked reading of untrusted bytes.
//
// Layout (little-endian; measured on CUDA 13.0):
//   header  u32 0xBA55ED50, u16 version 1, u16 header size (16), u64 bytes after the header
//   entry   64 or more bytes of header: u16 kind, u16 0x0101, u32 header size, u64 padded payload size,
//           u32 compressed size (0: stored), u32 offset of ptxas options, u16 minor, u16 major, u32 arch,
//           u32 name offset, u32 name length, u64 flags, u64 checksum-like, u64 uncompressed size;
//           then the payload. The next entry follows at header size + padded payload size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "images/image_kind.h"

namespace tally::images {

enum class FatEntryKind : uint16_t { kPtx = 1, kCubin = 2, kLtoIr = 8 };  // other values exist and are kept

enum class Compression : uint8_t { kStored, kLz4, kZstd, kUnknown };

namespace fat_flag {
inline constexpr uint64_t k64Bit = 0x1;
inline constexpr uint64_t kDebug = 0x2;
inline constexpr uint64_t kLz4 = 0x2000;
inline constexpr uint64_t kZstd = 0x8000;
inline constexpr uint64_t kArchSpecific = 0x100000;    // sm_90a
inline constexpr uint64_t kFamilySpecific = 0x200000;  // sm_100f
}  // namespace fat_flag

// What a compressed entry, and all entries of an image together, may claim to be once decompressed. Of shipped
// libraries NCCL's image for all architectures is the largest, with 577 MiB, and the best ratio is 134.
inline constexpr uint64_t kMaxExpansion = 1024;  // of entries that claim more than 1 MiB
inline constexpr uint64_t kMaxImageExpandedBytes = uint64_t{1} << 30;

// Views into the container's bytes.
struct FatEntry {
  FatEntryKind kind = FatEntryKind::kCubin;
  Compression compression = Compression::kStored;
  uint16_t version_major = 0;  // of the PTX language or of the cubin format
  uint16_t version_minor = 0;
  uint32_t arch = 0;  // 90 for sm_90 and compute_90
  uint64_t flags = 0;
  uint64_t uncompressed_bytes = 0;     // of the payload once decompressed; of a stored one its padded size
  std::string_view name;               // source file, mostly empty
  std::span<const std::byte> payload;  // as stored: without padding if compressed, with it if not
  std::span<const std::byte> whole;    // header, payload and padding
};

// The entries of the container at the start of `bytes`; bytes after the container are ignored.
// kInvalidArgument: not a container; kDataLoss: something points out of it.
Result<std::vector<FatEntry>> ReadFatContainer(std::span<const std::byte> bytes);

// Total bytes of the container at the start of `bytes`, header included; errors as above.
Result<size_t> FatContainerBytes(std::span<const std::byte> bytes);

// kResourceExhausted: the entry claims more than its payload could hold.
Status CheckExpansion(const FatEntry& entry);

// A device's capability, 90 for 9.0.
//
// Whether a device may be given the entry: a cubin of its major version and no greater minor one, PTX of no greater
// version than its own, and everything that is neither.
bool IsUsable(const FatEntry& entry, uint32_t capability);

// The container with only the entries that one of the devices may be given, in pieces of `container`: what is left of
// libraries that carry code for ten kinds of GPU is a tenth. Empty when the container is best shown as it is: nothing
// can be left out, no code would remain, or it makes no sense. Its new header goes into `header`.
std::vector<std::span<const std::byte>> WithoutUnusable(std::span<const std::byte> container,
                                                        std::span<const uint32_t> capabilities,
                                                        std::vector<std::byte>* header);

// Whether a driver that is given a pointer to these bytes stays inside them: everything it would follow by sizes and
// offsets (container entries, ELF tables, sections, their string tables, the NUL of PTX text) lies inside.
// It says nothing about what the code does. Segments are refused: their pointers mean nothing here.
// Returns what the bytes are. kResourceExhausted: decompressed they would be more than an image may be.
Result<ImageKind> ValidateImage(std::span<const std::byte> bytes);

}  // namespace tally::images
