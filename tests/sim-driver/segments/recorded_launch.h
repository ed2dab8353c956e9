// Launches on the software GPU whose every access is held against what was predicted.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptx-transforms/segments.h"
#include "sim-driver/engine/machine.h"
#include "tests/sim-driver/differential/runner.h"

namespace tally::ptx_transforms {

struct RecordedAccess {
  uint64_t address = 0;
  uint32_t bytes = 0;
  bool is_write = false;
  bool operator==(const RecordedAccess&) const = default;
};

// The first access that is in none of the segments; nothing if all are.
std::optional<std::string> FirstOutside(const std::vector<RecordedAccess>& accesses, const LaunchSegments& predicted,
                                        const KernelSegments& kernel);

struct LaunchTotals {
  uint64_t launches = 0;
  uint64_t barriers = 0;  // of them: nothing was to be predicted
  uint64_t faults = 0;    // of them: ended early
  uint64_t accesses = 0;  // different ones, per launch
  std::array<uint64_t, kNumSegmentClasses> by_class{};
};

// A line: "WHAT: 40 launches (...), ...".
std::string Report(std::string_view what, const LaunchTotals& totals);

class RecordedLaunches {
 public:
  // The variables of the kernel's module in the order of Program::variables(), as the request places them.
  std::optional<std::string> Check(sim_driver::LaunchRequest request, const KernelSegments& kernel, uint64_t budget);
  const LaunchTotals& totals() const { return totals_; }

 private:
  differential::Runner runner_;
  LaunchTotals totals_;
};

}  // namespace tally::ptx_transforms
