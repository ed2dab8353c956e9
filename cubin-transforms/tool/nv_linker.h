// NVIDIA's linker where it is installed (libnvJitLink, in the toolkit and beside PyTorch): it makes of relocatable
// cubins what a driver makes of them when it loads them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "cubin-transforms/tool/library_cubins.h"

namespace tally::cubin_transforms {

class NvLinker {
 public:
  // `path` empty: wherever the dynamic linker or the toolkit's usual folder has it. kNotFound: nowhere.
  static Result<NvLinker> Open(const std::string& path);

  // kFailedPrecondition: not by itself, and what the linker says; for instance that something is undefined.
  Result<std::vector<std::byte>> Link(const FoundCubin& cubin) const;

 private:
  struct Functions;
  explicit NvLinker(const Functions* functions) : functions_(functions) {}
  const Functions* functions_;  // stays loaded
};

// What a GPU runs of it: linked if it is relocatable, there is a linker (null: none) and the linker takes it; else as
// it is, and why it was not linked if it had to be. Fails if it could not be decompressed.
Result<std::vector<std::byte>> LinkIfNeeded(const FoundCubin& cubin, const NvLinker* linker,
                                            std::string* why_not = nullptr);

}  // namespace tally::cubin_transforms
