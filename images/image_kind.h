// What a pointer to device code points at, and how many bytes belong to it.
//
// CUDA hands device code over as bare pointers without sizes (cuModuleLoadData, cuLibraryLoadData). Four shapes exist:
//   segment    the 24 bytes nvcc puts into .nvFatBinSegment: a magic number and pointers to containers. It only means
//              something in the process that holds it.
//   container  "fat binary": a 16-byte header that knows the total size, then entries (fat_container.h)
//   cubin      an ELF file of machine code (cubin.h)
//   PTX        text that ends with a NUL
// This header is for the process that owns the memory, where the pointer is as good as the program's own: sizes are
// followed, but only within limits, so that a stray pointer gives an error where that can be had. Bytes that came from
// another process go through ValidateImage (fat_container.h) instead.
//
// No allocation except the returned vector, no threads, no third-party code: it runs inside the client's process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace tally::images {

enum class ImageKind : uint8_t { kUnknown, kFatSegment, kFatContainer, kCubin, kPtxText };

inline constexpr uint32_t kFatSegmentMagic = 0x466243B1;
inline constexpr uint32_t kFatContainerMagic = 0xBA55ED50;
// Nothing shipped comes near it (the largest container of NCCL 2.28 has 59 MB); a larger answer is a stray pointer.
inline constexpr size_t kMaxImageBytes = size_t{2} << 30;

// From the first bytes alone. Fewer than four bytes can only be PTX text.
ImageKind KindOfImage(std::span<const std::byte> bytes);
// Reads at most four bytes at `image`, which must not be null.
ImageKind KindOfImageAt(const void* image);

// Bytes of the container, cubin or PTX text (with its NUL) at `image`. For a segment ask ContainersOfSegment first.
// kInvalidArgument: null, a segment, none of the known shapes, or inconsistent headers; kOutOfRange: beyond
// kMaxImageBytes.
Result<size_t> ImageSizeFromPointer(const void* image);

// The containers that a segment points at, in order: version 1 has one; version 2 (nvcc -rdc=true) has the
// device-linked one, then the prelinked ones. All belong to one module. kInvalidArgument: null or not a segment.
Result<std::vector<const void*>> ContainersOfSegment(const void* segment);

}  // namespace tally::images
