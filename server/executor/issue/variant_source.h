// From an image to the PTX of a variant: finds the text that a kernel was made from and has the passes rewrite it.
// Thread-safe, no state; may take milliseconds for large modules.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace tally::server {

// An image's parts: PTX text, a cubin, or containers, as they were given to the driver.
using ImageParts = std::vector<std::span<const std::byte>>;

// Whether some PTX is in there that a device of architecture `arch` (90: sm_90) may run. Cheap: nothing is unpacked.
bool HasPtx(const ImageParts& image, uint32_t arch);
// The text that a device of that architecture would be given, whatever it defines. kUnimplemented: more than one.
Result<std::string> NewestPtx(const ImageParts& image, uint32_t arch);
// The text that defines kernel `name`: of the newest architecture up to `arch`. kNotFound: no PTX defines it.
Result<std::string> PtxOfKernel(const ImageParts& image, const std::string& name, uint32_t arch);

// Whether the driver may run machine code of the image that was made from other PTX than a text for `target`: then it
// need not do what that text says. `capability`: of the device.
bool HasOtherCode(const ImageParts& image, uint32_t capability, uint32_t target);

struct VariantText {
  std::string ptx;
  std::string entry;
  std::string import_table;
  std::vector<std::string> imports;
  uint32_t extra_shared_bytes = 0;
  bool needs_warp_rows = false;
  bool waits_for_blocks = false;
  bool gates_clusters = false;
};
// `passes` as ptx-transforms names them. kFailedPrecondition: the kernel does not lend itself to it; the message says
// why.
Result<VariantText> MakeVariant(const std::string& ptx, const std::string& kernel,
                                const std::vector<std::string>& passes);

}  // namespace tally::server
