#include "server/ctl/preemptibility_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "server/ctl/table.h"

namespace tally::cli {
namespace {

using control::v1::CoveredTime;
using control::v1::Session;

std::string Percent(uint64_t part_ns, uint64_t whole_ns) {
  if (part_ns == 0) return "-";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part_ns) / static_cast<double>(whole_ns));
}

uint64_t TimeBy(const Session& session, const std::string& by) {
  uint64_t sum_ns = 0;
  for (const CoveredTime& covered : session.coverage()) sum_ns += covered.by() == by ? covered.gpu_time_ns() : 0;
  return sum_ns;
}

// Why nothing but time slices, the most frequent reason first.
std::string Reasons(const Session& session, uint64_t whole_ns) {
  std::vector<const CoveredTime*> reasons;
  for (const CoveredTime& covered : session.coverage()) {
    if (!covered.reason().empty()) reasons.push_back(&covered);
  }
  std::ranges::sort(reasons, [](const auto* a, const auto* b) { return a->gpu_time_ns() > b->gpu_time_ns(); });
  std::string text;
  for (const CoveredTime* reason : reasons) {
    std::string words = reason->reason();
    std::ranges::replace(words, '_', ' ');
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", words, Percent(reason->gpu_time_ns(), whole_ns));
  }
  return text;
}

}  // namespace

std::string PreemptibilityTable(const control::v1::ListSessionsResponse& response) {
  Table table({"SESSION", "TENANT", "GPU S", "GATED", "WORKERS", "SLICES", "SHORT", "SUSPENDED", "TIME SLICE", "STOPS",
               "LEFT US", "WHY TIME SLICE"});
  bool is_empty = true;
  for (const Session& session : response.sessions()) {
    uint64_t whole_ns = 0;
    for (const CoveredTime& covered : session.coverage()) whole_ns += covered.gpu_time_ns();
    if (whole_ns == 0) continue;
    is_empty = false;
    const auto share = [&](const char* by) { return Percent(TimeBy(session, by), whole_ns); };
    const double left_us =
        session.stops() == 0 ? 0 : static_cast<double>(session.stop_ns()) / static_cast<double>(session.stops()) / 1e3;
    table.AddRow({fmt::format("{}", session.id()), session.tenant(),
                  fmt::format("{:.3f}", static_cast<double>(whole_ns) * 1e-9), share("gated"), share("workers"),
                  share("slices"), share("short"), share("suspension"), share("time_slice"),
                  fmt::format("{}", session.stops()), session.stops() == 0 ? "-" : fmt::format("{:.1f}", left_us),
                  Reasons(session, whole_ns)});
  }
  return is_empty ? "" : table.ToString();
}

}  // namespace tally::cli
