// A latency objective as users write it: "p99=2ms". For --slo and TALLY_SLO.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tally::scheduler {

struct Slo {
  double percentile = 99;  // above 0, below 100
  std::chrono::nanoseconds latency{0};
  bool operator==(const Slo&) const = default;
};

// pNUMBER=NUMBERUNIT with unit ns, us, ms or s: "p99=2ms", "p99.9=0.5s". No spaces. Percentiles from 1 to 99.99;
// latencies from 1 us to 1 h. kInvalidArgument, with what is wrong and an example, for anything else.
Result<Slo> ParseSlo(std::string_view text);
// A time as users write it, like "100ms": NUMBERUNIT with the same units. kInvalidArgument if it is none or not between
// the two bounds.
Result<std::chrono::nanoseconds> ParseTime(std::string_view text, std::chrono::nanoseconds least,
                                           std::chrono::nanoseconds most);
// The shortest text that ParseSlo reads as the same.
std::string ToText(const Slo& slo);

}  // namespace tally::scheduler
