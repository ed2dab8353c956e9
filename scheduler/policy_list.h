// The policies, in one table. A new one is a pair of files in policies/ and a row.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"
#include "scheduler/policy.h"

namespace tally::scheduler {

inline constexpr const char* kLookAheadPolicy = "look-ahead";
// What "auto" (policy_choice.h) comes to on a GPU: launches go at once, contexts take turns by their time slices.
inline constexpr const char* kTimeSlicesPolicy = "time-slices";

struct PolicyRow {
  std::string_view name;  // as users write it
  std::string_view description = "";
  // Nobody can ask for it, since it needs a driver that accepts time slices; without them it is `none`.
  bool is_by_auto_only = false;
  // Launches run in the form that the kernel's profile chooses (VariantChoice). Otherwise in their original form, and
  // can_yield is never set.
  bool uses_variants = false;
  // Best-effort launches stay back while high-priority work runs ...
  bool minds_class = false;
  // ... and for the hold-off after it.
  bool minds_hold_off = false;
  // High-priority launches wait for those of higher levels.
  bool minds_levels = false;
  // Tenants share GPU time by their weights.
  bool minds_weights = false;
  // What has waited for the starvation bound gets one launch through.
  bool has_starvation_bound = false;
  // It decides nothing where there is no high-priority executor: best-effort launches do not ask then.
  bool decides_beside_high_priority_only = false;
  // Launches that can yield go whenever admission is open, without asking.
  bool lets_yielding_pass = false;
  // It wants to know how long launches take: some are timed.
  bool minds_durations = false;
  std::unique_ptr<Policy> (*create)(const PolicyConfig&) = nullptr;
};

std::span<const PolicyRow> Policies();
// kInvalidArgument, with all names, if there is none of that name that somebody can ask for.
Result<const PolicyRow*> FindPolicy(std::string_view name);

}  // namespace tally::scheduler
