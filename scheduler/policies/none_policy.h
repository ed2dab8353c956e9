// `none`: no scheduling. Whatever is submitted goes at once; class, level and weight mean nothing.
//
// What sharing a GPU costs when nobody decides: the "no scheduling" of Tally's ablation (Fig. 6b).
#pragma once

#include "scheduler/policy.h"
#include "scheduler/tenant_rings.h"

namespace tally::scheduler {

class NonePolicy final : public Policy {
 public:
  explicit NonePolicy(const PolicyConfig&) {}
  std::optional<Decision> Next(TimePoint now) override;

 private:
  void OnBacklogged(uint32_t tenant, TimePoint now) override;
  void OnDrained(uint32_t tenant, TimePoint now) override;
  void OnEnded(const Launch&, Nanoseconds, TimePoint) override {}

  TenantRings waiting_{1};
};

}  // namespace tally::scheduler
