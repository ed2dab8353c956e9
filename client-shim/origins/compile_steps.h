// What NVRTC and nvJitLink tell of their work through their cache's table (entry/export_tables.cc): each step asks
// with its source and options, and finds its result or brings it. Measured with CUDA 13.0:
//
//   NVRTC      NVVM bitcode -> PTX text, then the same bitcode -> the cubin that the program gets
//   nvJitLink  PTX text -> a cubin that is not linked; what the linker makes of it never comes by
//
// A step that is found teaches as much as one that is brought, so a cache that is full or off makes no difference.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/file_cache.h"
#include "client-shim/origins/compile_cache.h"
#include "client-shim/origins/ptx_origins.h"

namespace tally::client_shim {

struct CompileStep {
  FileCache::Key key;          // of the cache on disk
  bool is_remembered = false;  // the rest is there
  FileCache::Key source;
  PtxText ptx;  // the source, if it is PTX
  bool is_contraction_off = false;
};

// `remember` false: only the key.
CompileStep StepOf(const CompileInput& input, bool remember);
// On the thread that asked. Nothing for a step that is not remembered.
void LearnFrom(const CompileStep& step, std::span<const std::byte> result, PtxOrigins* origins);

// Whether what `ptx` computes is in its text. With ptxas --fmad=false it is only if no multiplication leaves its
// rounding open; all other options of ptxas are about speed and debugging.
bool SaysItsResults(std::string_view ptx, bool is_contraction_off);

}  // namespace tally::client_shim
