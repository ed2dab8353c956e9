#include "scheduler/policy_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <vector>

#include "scheduler/policy_list.h"

namespace tally::scheduler {
namespace {

struct SettingRow {
  const char* name;
  bool PolicyRow::*is_honoured;
};

// By Setting. An objective moves the hold-off, the drain budget and the turnaround threshold: where kernels give the
// GPU back there is at least one of them.
constexpr SettingRow kSettings[] = {
    {"a weight", &PolicyRow::minds_weights},
    {"a level", &PolicyRow::minds_levels},
    {"an objective (--slo)", &PolicyRow::uses_variants},
    {"a turnaround threshold", &PolicyRow::uses_variants},
    {"'transforms'", &PolicyRow::uses_variants},
    {"a starvation bound", &PolicyRow::has_starvation_bound},
    {"'suspend_best_effort'", &PolicyRow::minds_class},
};
static_assert(std::size(kSettings) == static_cast<size_t>(Setting::kDescheduling) + 1);

}  // namespace

PolicyChoice ChoosePolicy(const PolicyFacts& facts) {
  if (facts.configured != kAutoPolicy) return {facts.configured, "as configured"};
  if (facts.is_software) return {kLookAheadPolicy, "the software GPU has no time slices"};
  if (facts.are_slices_left_alone) return {kLookAheadPolicy, "time_slice_us is 0"};
  if (facts.are_classes_mixed) return {kLookAheadPolicy, "both classes share a context"};
  switch (facts.answer) {
    case TimeSliceAnswer::kRefused:
      return {kLookAheadPolicy, "the driver refuses time slices"};
    case TimeSliceAnswer::kNoEffect:
      return {kLookAheadPolicy, "time slices have no effect on this GPU"};
    case TimeSliceAnswer::kAccepted:
      return {kTimeSlicesPolicy, "the driver accepts them"};
    case TimeSliceAnswer::kNone:
      break;
  }
  return {kTimeSlicesPolicy, "the driver was not asked yet"};
}

Status CheckHonoured(Setting setting, std::string_view policy) {
  const SettingRow& asked = kSettings[static_cast<size_t>(setting)];
  bool is_honoured = false;
  std::vector<std::string_view> honouring;
  for (const PolicyRow& row : Policies()) {
    if (!(row.*asked.is_honoured)) continue;
    honouring.push_back(row.name);
    is_honoured |= row.name == policy;
  }
  if (is_honoured) return OkStatus();
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{} is ignored by the policy in force, {}: it takes tallyd with --policy {}", asked.name,
                            policy, fmt::join(honouring, " or ")));
}

}  // namespace tally::scheduler
