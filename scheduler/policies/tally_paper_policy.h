// `tally-paper`: the policy of the Tally paper (section 4): strict priority with preemption.
//
// As kernel-granular, and launches run in the form that the kernel's profile chose (VariantChoice): when high-priority
// work arrives, a best-effort launch that can yield is told to at once, and goes on when no high-priority work is left.
// One best-effort launch in flight, no hold-off, best-effort tenants in turn.
#pragma once

#include "scheduler/policies/kernel_granular_policy.h"

namespace tally::scheduler {

class TallyPaperPolicy final : public KernelGranularPolicy {
 public:
  using KernelGranularPolicy::KernelGranularPolicy;
  std::optional<Decision> Next(TimePoint now) override;
};

}  // namespace tally::scheduler
