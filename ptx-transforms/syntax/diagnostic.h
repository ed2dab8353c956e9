// One remark about a place in PTX text.
#pragma once

#include <string>
#include <string_view>

#include "ptx-transforms/syntax/source.h"

namespace tally::ptx_transforms {

struct Diagnostic {
  SourcePosition position;
  std::string message;

  // "NAME:LINE:COL: message", as compilers write it.
  std::string ToString(std::string_view source_name = "ptx") const;
};

}  // namespace tally::ptx_transforms
