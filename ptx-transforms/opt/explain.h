// What ptx-opt tells people about a transformation.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include "ptx-transforms/transform.h"

namespace tally::ptx_transforms {

// A line per kernel: "KERNEL: done as NAME (slice_grid)" or "KERNEL: refused by PASS [CODE]: SENTENCE".
std::string ExplainAsText(const Transformed& result);
// An object {"kernels": [{"kernel", "passes", "status", ...}], "imports": [...]}; docs/ptx-opt.md lists the fields.
std::string ExplainAsJson(const Transformed& result);

// Time per pass, over all kernels.
class PassTimes {
 public:
  void On(std::string_view pass, bool is_start);
  std::string ToText() const;

 private:
  struct Total {
    std::chrono::nanoseconds time{};
    size_t runs = 0;
  };
  std::chrono::steady_clock::time_point started_;
  std::map<std::string, Total, std::less<>> totals_;
};

}  // namespace tally::ptx_transforms
