// What NVIDIA's run-time compilers (NVRTC, nvJitLink) have compiled, kept on disk as their driver keeps it.
//
// The compilers ask the driver for a finished result before they compile, through an export table
// (entry/export_tables.cc). Without an answer every process compiles anew, and some libraries compile the same source
// again and again within one: cuDNN's attention for every new sequence length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/file_cache.h"

namespace tally::client_shim {

struct CompileInput {
  int32_t kind = 0;  // of source; the compilers' own number, as all numbers here
  std::span<const std::byte> source;
  std::string_view options;
  std::string_view platform;
  std::string_view compiler_build;
  int32_t architecture = 0;
  int32_t flags = 0;
};
FileCache::Key CompileKeyOf(const CompileInput& input);

// As the environment of this process says now. As with NVIDIA's driver CUDA_CACHE_DISABLE=1 turns the cache off,
// CUDA_CACHE_PATH moves it (to a folder in it) and CUDA_CACHE_MAXSIZE bounds it (bytes). Otherwise it is
// $XDG_CACHE_HOME/tally/compiled, or that below ~/.cache.
FileCache CompileCacheOfEnvironment();

}  // namespace tally::client_shim
