// Counts, per library and architecture, the kernels that can be gated, and why the others cannot.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "cubin-transforms/add_gates.h"
#include "cubin-transforms/tool/nv_linker.h"

namespace tally::cubin_transforms {

struct CensusRow {
  std::string library;
  uint32_t arch = 0;
  size_t cubins = 0;
  size_t kernels = 0;
  size_t gated = 0;
  uint64_t bytes = 0;                        // of the cubins, decompressed and linked
  uint64_t gated_bytes = 0;                  // of the same with gates
  double seconds = 0;                        // of the CPU, for adding and verifying the gates
  std::map<std::string, size_t> refusals;    // kernels by reason
  std::map<std::string, size_t> unreadable;  // cubins by reason
  double share() const { return kernels == 0 ? 1 : static_cast<double>(gated) / static_cast<double>(kernels); }
};

struct Census {
  std::vector<CensusRow> rows;  // by library in the order given, then by architecture
  // Over all libraries; its name is empty.
  std::vector<CensusRow> Totals() const;
};

// Of one file, added to the census; `linker` as LinkIfNeeded. Fails if it cannot be read; a file without cubins adds
// nothing.
Status CountFile(const std::string& path, const NvLinker* linker, const GateOptions& options, Census& census);

std::string CensusAsText(const Census& census);
std::string CensusAsMarkdown(const Census& census);
std::string CensusAsJson(const Census& census);

}  // namespace tally::cubin_transforms
