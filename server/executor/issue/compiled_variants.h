// The variants of one kernel as the compiler left them: machine code that any context of its architecture can load.
// Immutable once made; shared by all sessions whose image holds the kernel.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace tally::server {

struct CompiledForm {
  std::vector<std::byte> image;      // for cuModuleLoadData; empty: there is none
  std::string entry;                 // the kernel's name in it
  std::string import_table;          // symbol of an array of u64; empty: nothing is imported
  std::vector<std::string> imports;  // variables of the program's own module whose addresses belong there, in order
  uint32_t extra_shared_bytes = 0;   // dynamic shared memory that a launch must ask for beyond the program's
  bool needs_warp_rows = false;      // only for blocks whose x is a multiple of 32, or of one dimension
  bool waits_for_blocks = false;     // must not be stopped where all its blocks run at once (KernelVariant)
  bool gates_clusters = false;       // may be launched with clusters, or behind a launch that has not ended (likewise)
  std::string refusal;               // of an empty image: why, one sentence

  bool exists() const { return !image.empty(); }
};

struct CompiledVariants {
  CompiledForm slices;
  CompiledForm persistent_blocks;
  CompiledForm gated;
};

// For the disk. kDataLoss: not what was written.
std::vector<std::byte> Serialize(const CompiledVariants& variants);
Result<CompiledVariants> DeserializeVariants(std::span<const std::byte> bytes);

}  // namespace tally::server
