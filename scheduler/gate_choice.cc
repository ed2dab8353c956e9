#include "scheduler/gate_choice.h"

namespace tally::scheduler {

bool GateChoice::IsDear(Nanoseconds original, Nanoseconds threshold) const {
  if (!IsShort(original, threshold)) return false;
  const Nanoseconds cost = duration() - original;
  return cost > kDear && cost * 100 > original * kDearPercent;
}

GateChoice::Next GateChoice::NextLaunch(Nanoseconds original, Nanoseconds threshold) {
  if (gated_.size() < kSamplesEach) return {.is_gated = true, .is_sample = true};
  const bool is_dear = IsDear(original, threshold);
  if (is_dear && alone_.size() < kSamplesEach) return {.is_gated = false, .is_sample = true};
  is_left_alone_ = is_dear && alone_.Median() < duration();
  const bool is_sample = ++num_since_sample_ >= kLaunchesBetweenSamples;
  if (is_sample) num_since_sample_ = 0;
  return {.is_gated = !is_left_alone_, .is_sample = is_sample};
}

}  // namespace tally::scheduler
