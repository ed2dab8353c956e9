// From the pointer that a program loads to a compiled program; and the linker (cuLink*).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim-driver/engine/program.h"

namespace tally::sim_driver {

// The options of cuModuleLoadDataEx, cuLibraryLoadData, cuLink*: the log buffers are used, compiler settings accepted
// and ignored. The program's memory: nothing is kept after the call, but cuLinkComplete writes to cuLinkCreate's.
class JitOptions {
 public:
  JitOptions() = default;
  // Fails with INVALID_VALUE for missing arrays or unknown options.
  JitOptions(unsigned count, const CUjit_option* options, void** values);
  // The first line of what went wrong, or nothing: writes the buffers and the sizes used.
  void WriteErrorLog(std::string_view text);
  void Finish();

 private:
  char* error_buffer_ = nullptr;
  size_t error_size_ = 0;
  void** error_size_slot_ = nullptr;
  size_t error_used_ = 0;
  void** info_size_slot_ = nullptr;
  void** wall_time_slot_ = nullptr;
};

// The PTX texts that an image holds for this device (sm_90), to be linked together. Fails with NO_BINARY_FOR_GPU when
// there is only machine code or PTX for newer devices, INVALID_IMAGE for bytes of no known kind.
std::vector<std::string> PtxOfImage(const void* image);
// The same for a fat binary or PTX text of known size.
std::vector<std::string> PtxOfBytes(const std::byte* bytes, size_t size);

// Fails with INVALID_PTX; the error log says where.
std::shared_ptr<const Program> CompileTexts(const std::vector<std::string>& texts, JitOptions& options);
std::shared_ptr<const Program> LoadImage(const void* image, JitOptions& options);
// Fails with FILE_NOT_FOUND.
std::vector<std::byte> ReadFileOrFail(const char* path);

// A fat binary that holds the texts as one linkable set: what cuLinkComplete returns.
std::vector<std::byte> ContainerOfTexts(const std::vector<std::string>& texts);

}  // namespace tally::sim_driver
