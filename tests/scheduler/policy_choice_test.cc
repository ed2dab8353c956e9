#include "scheduler/policy_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "scheduler/policy_list.h"

namespace tally::scheduler {
namespace {

constexpr TimeSliceAnswer kAnswers[] = {TimeSliceAnswer::kNone, TimeSliceAnswer::kAccepted, TimeSliceAnswer::kRefused,
                                        TimeSliceAnswer::kNoEffect};

template <typename F>
void ForAllFacts(std::string_view configured, const F& check) {
  for (const bool is_software : {false, true}) {
    for (const bool are_slices_left_alone : {false, true}) {
      for (const bool are_classes_mixed : {false, true}) {
        for (const TimeSliceAnswer answer : kAnswers) {
          check(PolicyFacts{configured, is_software, are_slices_left_alone, are_classes_mixed, answer});
        }
      }
    }
  }
}

TEST(PolicyChoice, TimeSlicesAloneWhereTheyCanBeHadAndLookAheadElsewhere) {
  int num_left_to_slices = 0;
  ForAllFacts(kAutoPolicy, [&](const PolicyFacts& facts) {
    const bool can_be_had = !facts.is_software && !facts.are_slices_left_alone && !facts.are_classes_mixed &&
                            facts.answer != TimeSliceAnswer::kRefused && facts.answer != TimeSliceAnswer::kNoEffect;
    const PolicyChoice choice = ChoosePolicy(facts);
    EXPECT_EQ(choice.policy, can_be_had ? kTimeSlicesPolicy : kLookAheadPolicy);
    EXPECT_FALSE(choice.reason.empty());
    num_left_to_slices += can_be_had ? 1 : 0;
  });
  EXPECT_EQ(num_left_to_slices, 2) << "accepted, or not asked yet";
}

TEST(PolicyChoice, TheReasonIsTheOneThatTheReaderCanActOn) {
  const auto reason = [](const PolicyFacts& facts) { return ChoosePolicy(facts).reason; };
  EXPECT_EQ(reason({.answer = TimeSliceAnswer::kAccepted}), "the driver accepts them");
  EXPECT_EQ(reason({.answer = TimeSliceAnswer::kRefused}), "the driver refuses time slices");
  EXPECT_EQ(reason({.answer = TimeSliceAnswer::kNoEffect}), "time slices have no effect on this GPU");
  EXPECT_EQ(reason({.are_classes_mixed = true, .answer = TimeSliceAnswer::kAccepted}), "both classes share a context");
  EXPECT_EQ(reason({.are_slices_left_alone = true, .answer = TimeSliceAnswer::kAccepted}), "time_slice_us is 0");
  EXPECT_EQ(reason({.is_software = true, .answer = TimeSliceAnswer::kRefused}), "the software GPU has no time slices");
}

TEST(PolicyChoice, APolicyThatWasAskedForIsInForceWhateverElseIsSo) {
  std::vector<std::string> names = {kLookAheadPolicy};
  for (const PolicyRow& row : Policies()) names.emplace_back(row.name);
  for (const std::string& name : names) {
    ForAllFacts(name, [&](const PolicyFacts& facts) { EXPECT_EQ(ChoosePolicy(facts).policy, name); });
  }
}

struct Honoured {
  Setting setting;
  const char* what;
  std::vector<std::string> by;
};

TEST(PolicyChoice, WhatAPolicyIgnoresIsRefusedWithThoseThatDoNot) {
  const std::vector<std::string> all = {"look-ahead",  "time-slices", "none", "kernel-granular",
                                        "tally-paper", "fair",        "tally"};
  const std::vector<std::string> tunable = {"look-ahead", "tally-paper", "tally"};
  for (const Honoured& row :
       {Honoured{Setting::kWeight, "a weight ", {"fair", "tally"}}, Honoured{Setting::kLevel, "a level ", {"tally"}},
        Honoured{Setting::kObjective, "an objective (--slo) ", tunable},
        Honoured{Setting::kTurnaround, "a turnaround threshold ", tunable},
        Honoured{Setting::kTransforms, "'transforms' ", tunable},
        Honoured{Setting::kStarvationBound, "a starvation bound ", {"look-ahead", "tally"}},
        Honoured{Setting::kDescheduling,
                 "'suspend_best_effort' ",
                 {"look-ahead", "kernel-granular", "tally-paper", "tally"}}}) {
    std::string honouring;
    for (const std::string& name : row.by) honouring += (honouring.empty() ? "" : " or ") + name;
    for (const std::string& policy : all) {
      const bool is_honoured = std::find(row.by.begin(), row.by.end(), policy) != row.by.end();
      const Status checked = CheckHonoured(row.setting, policy);
      EXPECT_EQ(checked.ok(), is_honoured) << row.what << policy;
      if (is_honoured) continue;
      EXPECT_EQ(checked.code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(checked.message(), std::string(row.what) + "is ignored by the policy in force, " + policy +
                                       ": it takes tallyd with --policy " + honouring);
    }
  }
}

}  // namespace
}  // namespace tally::scheduler
