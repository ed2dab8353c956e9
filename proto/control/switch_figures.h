// What tally-switch-test (server/executor/process/switch_test.cc) found: for tallyd and tallyctl, which both run it.
#pragma once

#include <optional>
#include <string>

namespace tally::control {

struct SwitchFigures {
  bool acts = false;  // time slices can be set and have an effect
  double p50_us = 0;  // of a kernel's latency beside a GPU full of long best-effort kernels
  double p99_us = 0;
  double own_p99_us = 0;  // the same with the driver's own time slices
};

// What the program prints with --json; nothing if that is something else.
std::optional<SwitchFigures> ParseSwitchFigures(const std::string& json);

}  // namespace tally::control
