// Every cubin inside a file: a cubin, a fat binary, or any file with fat binaries somewhere inside, as CUDA's libraries
// have them (not only in .nv_fatbin: cuFFT keeps most in .ldata, cuBLASLt some in .cask_resource).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace tally::cubin_transforms {

// A file mapped for reading: of a library of 500 MB only what is looked at takes memory.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

struct FoundCubin {
  size_t container = 0;  // its number in the file; a cubin by itself is in container 0
  uint32_t arch = 0;
  bool is_arch_specific = false;              // sm_90a
  Result<std::vector<std::byte>> bytes = {};  // decompressed, or why that failed
};

// One after another, so that no more than one is in memory. Returns how many there were.
size_t ForEachCubin(std::span<const std::byte> file, const std::function<void(const FoundCubin&)>& visit);

}  // namespace tally::cubin_transforms
