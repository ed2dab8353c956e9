#include "scheduler/policy_list.h"

#include <fmt/format.h>

#include <string>

#include "scheduler/policies/fair_policy.h"
#include "scheduler/policies/kernel_granular_policy.h"
#include "scheduler/policies/look_ahead_policy.h"
#include "scheduler/policies/none_policy.h"
#include "scheduler/policies/tally_paper_policy.h"
#include "scheduler/policies/tally_policy.h"

namespace tally::scheduler {
namespace {

template <typename P>
std::unique_ptr<Policy> Create(const PolicyConfig& config) {
  return std::make_unique<P>(config);
}

constexpr PolicyRow kPolicies[] = {
    {.name = kLookAheadPolicy,
     .description =
         "strict priority by class, adaptive hold-off, as many launches at once as have lately drained quickly",
     .uses_variants = true,
     .minds_class = true,
     .minds_hold_off = true,
     .has_starvation_bound = true,
     .decides_beside_high_priority_only = true,
     .lets_yielding_pass = true,
     .create = Create<LookAheadPolicy>},
    {.name = kTimeSlicesPolicy,
     .description = "everything goes at once; the GPU takes turns between the classes",
     .is_by_auto_only = true,
     .create = Create<NonePolicy>},
    {.name = "none", .description = "no scheduling: everything goes at once", .create = Create<NonePolicy>},
    {.name = "kernel-granular",
     .description = "strict priority between kernels, nothing yields (the ablation of Tally's Fig. 6b)",
     .minds_class = true,
     .minds_durations = true,
     .create = Create<KernelGranularPolicy>},
    {.name = "tally-paper",
     .description =
         "the paper's: strict priority, one best-effort launch at a time, which yields to high-priority work",
     .uses_variants = true,
     .minds_class = true,
     .minds_durations = true,
     .create = Create<TallyPaperPolicy>},
    {.name = "fair",
     .description = "GPU time by weight among all tenants, whatever their class",
     .minds_weights = true,
     .minds_durations = true,
     .create = Create<FairPolicy>},
    {.name = "tally",
     .description = "strict priority by class and level, adaptive hold-off, best-effort tenants by weight and side by "
                    "side",
     .uses_variants = true,
     .minds_class = true,
     .minds_hold_off = true,
     .minds_levels = true,
     .minds_weights = true,
     .has_starvation_bound = true,
     .minds_durations = true,
     .create = Create<TallyPolicy>},
};

}  // namespace

std::span<const PolicyRow> Policies() { return kPolicies; }

Result<const PolicyRow*> FindPolicy(std::string_view name) {
  std::string names;
  for (const PolicyRow& row : kPolicies) {
    if (row.is_by_auto_only) continue;
    if (row.name == name) return &row;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  }
  return Error(StatusCode::kInvalidArgument, fmt::format("there is no policy '{}'; there are {}", name, names));
}

}  // namespace tally::scheduler
