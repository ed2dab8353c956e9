// Which policy is in force in an executor, and what of the things that people may ask for it honours.
//
// "auto", the default, leaves the classes to the GPU's own time slices where those can be had, because best-effort
// programs then keep most of their speed and requests wait hardly longer (docs/scheduling.md has the numbers); else it
// is look-ahead. Pure: who knows the facts asks again when one has changed.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "scheduler/policy_list.h"

namespace tally::scheduler {

inline constexpr const char* kAutoPolicy = "auto";

// What is known of the time slices of an executor's contexts.
enum class TimeSliceAnswer : uint8_t {
  kNone,      // it has no context yet
  kAccepted,  // they are as they were asked for
  kRefused,   // they are not, or nobody can tell
  kNoEffect,  // they are, but the GPU does not act on them
};

struct PolicyFacts {
  std::string_view configured = kAutoPolicy;  // or a policy's name
  bool is_software = false;                   // the software GPU
  bool are_slices_left_alone = false;
  bool are_classes_mixed = false;  // programs of both classes in one context
  TimeSliceAnswer answer = TimeSliceAnswer::kNone;
};

struct PolicyChoice {
  std::string_view policy;  // never kAutoPolicy
  std::string_view reason;  // for people; a constant, like the name
  bool operator==(const PolicyChoice&) const = default;
};

// A policy that was asked for by name is in force whatever the facts are. `configured` must outlive the choice.
PolicyChoice ChoosePolicy(const PolicyFacts& facts);

// What programs and operators may ask for.
enum class Setting : uint8_t {
  kWeight,
  kLevel,
  kObjective,
  kTurnaround,
  kTransforms,
  kStarvationBound,
  kDescheduling,
};

// kInvalidArgument if `policy` ignores it; the sentence says which policies do not. `policy` is one in force.
Status CheckHonoured(Setting setting, std::string_view policy);

}  // namespace tally::scheduler
