#include "scheduler/policy_list.h"

#include <fmt/format.h>

#include <string>

#include "scheduler/policies/fair_policy.h"
#include "scheduler/policies/kernel_granular_policy.h"
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
    {"none", "no scheduling: everything goes at once", false, false, false, false, Create<NonePolicy>},
    {"kernel-granular", "strict priority between kernels, nothing yields (the ablation of Tally's Fig. 6b)", false,
     true, false, false, Create<KernelGranularPolicy>},
    {"tally-paper",
     "the paper's: strict priority, one best-effort launch at a time, which yields to high-priority work", true, true,
     false, false, Create<TallyPaperPolicy>},
    {"fair", "GPU time by weight among all tenants, whatever their class", false, false, false, false,
     Create<FairPolicy>},
    {"tally", "strict priority by class and level, adaptive hold-off, best-effort tenants by weight and side by side",
     true, true, true, true, Create<TallyPolicy>},
};

}  // namespace

std::span<const PolicyRow> Policies() { return kPolicies; }

Result<const PolicyRow*> FindPolicy(std::string_view name) {
  std::string names;
  for (const PolicyRow& row : kPolicies) {
    if (row.name == name) return &row;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  }
  return Error(StatusCode::kInvalidArgument, fmt::format("there is no policy '{}'; there are {}", name, names));
}

}  // namespace tally::scheduler
