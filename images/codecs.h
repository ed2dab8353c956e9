// Decompression of fat binary entries (zstd, LZ4 blocks). A target of its own, tally_images_codecs, because the
// client's process must not carry these libraries.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "images/fat_container.h"

namespace tally::images {

// The largest payload that shipped libraries hold is well below; a larger claim is an attack on our memory.
inline constexpr size_t kMaxDecompressedBytes = size_t{512} << 20;

// The entry's payload as it was before compression; a stored one is copied. Never allocates more than `max_bytes`.
// kResourceExhausted: would be larger than `max_bytes`; kDataLoss: corrupt; kUnimplemented: unknown compression.
Result<std::vector<std::byte>> DecompressEntry(const FatEntry& entry, size_t max_bytes = kMaxDecompressedBytes);

// The same for an entry of kind PTX, as text without the NUL and the padding behind it.
// kInvalidArgument: the entry is not PTX.
Result<std::string> DecompressPtx(const FatEntry& entry, size_t max_bytes = kMaxDecompressedBytes);

}  // namespace tally::images
