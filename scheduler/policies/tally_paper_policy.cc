#include "scheduler/policies/tally_paper_policy.h"

namespace tally::scheduler {

std::optional<Decision> TallyPaperPolicy::Next(TimePoint now) {
  if (yields_.any_to_ask() && IsHighPriorityPresent()) {
    yields_.OnAsked();
    return Decision{.kind = Decision::Kind::kYield, .tenant = {}, .launch = {}};
  }
  return KernelGranularPolicy::Next(now);
}

}  // namespace tally::scheduler
