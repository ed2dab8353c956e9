#include "server/executor/issue/kernel_profile.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

using scheduler::LaunchCandidate;
using scheduler::LaunchForm;
using std::chrono::microseconds;

constexpr std::chrono::nanoseconds kThreshold{31'600};
const LaunchShape kShape{{1000, 1, 1}, {128, 1, 1}, 0};
const LaunchCandidate kOriginal{}, kPersistentBlocks{LaunchForm::kPersistentBlocks, 264},
    kSlices{LaunchForm::kSlices, 32};

std::shared_ptr<const CompiledVariants> Compiled(std::string refusal = "") {
  CompiledVariants variants;
  if (refusal.empty()) variants.persistent_blocks.image.resize(1);
  variants.persistent_blocks.refusal = variants.slices.refusal = std::move(refusal);
  return std::make_shared<const CompiledVariants>(std::move(variants));
}

// Launches until the plan is not to be timed; every time is as `duration_of` says.
template <typename DurationOf>
LaunchCandidate Settle(KernelProfile& profile, DurationOf duration_of) {
  for (int i = 0; i < 100; ++i) {
    const auto plan = profile.PlanLaunch(kShape, kThreshold);
    if (plan.wants_candidates) profile.SetCandidates(kShape, std::vector{kPersistentBlocks, kSlices}, kThreshold);
    if (!plan.is_sample && !plan.wants_candidates) return plan.candidate;
    if (plan.is_sample) profile.OnDuration(kShape, plan.candidate, duration_of(plan.candidate));
  }
  ADD_FAILURE() << "does not settle";
  return {};
}

TEST(KernelProfileTest, AsksForVariantsOnceAndOnlyIfTheOriginalIsTooLong) {
  KernelProfile quick("quick", {}, ""), slow("slow", {}, "");
  EXPECT_EQ(Settle(quick, [](auto) { return microseconds(10); }), kOriginal);
  int num_asked = 0;
  for (int i = 0; i < 10; ++i) {
    const auto plan = slow.PlanLaunch(kShape, kThreshold);
    if (plan.is_sample) slow.OnDuration(kShape, plan.candidate, microseconds(500));
    num_asked += plan.wants_variants ? 1 : 0;
    EXPECT_FALSE(quick.PlanLaunch(kShape, kThreshold).wants_variants);
  }
  EXPECT_EQ(num_asked, 1);
  EXPECT_EQ(slow.Report(kThreshold).at(0).remark, "variants are being compiled");
}

TEST(KernelProfileTest, AKernelThatCanOnlyBeGatedIsNotRefused) {
  for (const bool has_gate : {false, true}) {
    KernelProfile profile("kernel", {}, "");
    EXPECT_EQ(Settle(profile, [](auto) { return microseconds(500); }), kOriginal);
    CompiledVariants variants;
    variants.persistent_blocks.refusal = variants.slices.refusal = "waits for other blocks";
    if (has_gate) variants.gated.image.resize(1);
    profile.SetVariants(std::make_shared<const CompiledVariants>(std::move(variants)));
    EXPECT_EQ(profile.Report(kThreshold).at(0).remark,
              has_gate ? "variants are being measured" : "waits for other blocks");
    const auto plan = profile.PlanLaunch(kShape, kThreshold);
    EXPECT_EQ(plan.is_settled, !has_gate);
    EXPECT_EQ(plan.wants_candidates, has_gate);
  }
}

TEST(KernelProfileTest, TriesWhatTheCompilerMade) {
  KernelProfile profile("kernel", {}, "");
  const auto duration_of = [](const LaunchCandidate& candidate) {
    return candidate.form == LaunchForm::kOriginal ? microseconds(500) : microseconds(90);
  };
  EXPECT_EQ(Settle(profile, duration_of), kOriginal);
  profile.SetVariants(Compiled());
  EXPECT_EQ(Settle(profile, duration_of), kPersistentBlocks);
  const KernelReport report = profile.Report(kThreshold).at(0);
  EXPECT_EQ(report.chosen.candidate, kPersistentBlocks);
  EXPECT_EQ(report.original_duration, microseconds(500));
  EXPECT_EQ(report.remark, "");
  // Real yields took too long: the slices are used from now on.
  for (int i = 0; i < 3; ++i) profile.OnTurnaround(kShape, kPersistentBlocks, microseconds(300));
  EXPECT_EQ(profile.PlanLaunch(kShape, kThreshold).candidate, kSlices);
}

TEST(KernelProfileTest, SessionsWithThresholdsOfTheirOwnShareWhatWasMeasured) {
  KernelProfile profile("kernel", {}, "");
  const auto duration_of = [](const LaunchCandidate& candidate) {
    return candidate.form == LaunchForm::kOriginal ? microseconds(500) : microseconds(600);
  };
  Settle(profile, duration_of);
  profile.SetVariants(Compiled());
  Settle(profile, duration_of);
  const auto patient = profile.PlanLaunch(kShape, microseconds(1000));
  EXPECT_EQ(patient.candidate, kOriginal);
  EXPECT_EQ(profile.Report(kThreshold).at(0).chosen.candidate, kOriginal) << "as the last launch ran";
  EXPECT_EQ(profile.PlanLaunch(kShape, kThreshold).candidate, kSlices);
  EXPECT_EQ(profile.Report(microseconds(1000)).at(0).chosen.candidate, kSlices);
  EXPECT_TRUE(profile.PlanLaunch(kShape, microseconds(10)).wants_candidates);
  // What was tried for is known in the next life.
  KernelProfile later("kernel", {}, "");
  later.Restore(profile.Save());
  later.SetVariants(Compiled());
  EXPECT_FALSE(later.PlanLaunch(kShape, kThreshold).wants_candidates);
  EXPECT_TRUE(later.PlanLaunch(kShape, microseconds(10)).wants_candidates);
}

TEST(KernelProfileTest, SaysWhyThereIsNoVariant) {
  KernelProfile profile("kernel", {}, "");
  Settle(profile, [](auto) { return microseconds(500); });
  profile.SetVariants(Compiled("waits for other blocks"));
  EXPECT_EQ(Settle(profile, [](auto) { return microseconds(500); }), kOriginal);
  EXPECT_FALSE(profile.PlanLaunch(kShape, kThreshold).wants_candidates);
  EXPECT_EQ(profile.Report(kThreshold).at(0).remark, "waits for other blocks");
}

TEST(KernelProfileTest, SaysWhatTheGateCostsAndGives) {
  KernelProfile profile("kernel", {}, "");
  Settle(profile, [](auto) { return microseconds(500); });
  const auto use = profile.UseGate(kShape, 64, microseconds(40), kThreshold);
  EXPECT_TRUE(use.is_gated && use.is_sample);
  EXPECT_EQ(use.duration, microseconds(500)) << "of the original, until one was timed";
  const KernelReport before = profile.Report(kThreshold).at(0);
  EXPECT_EQ(before.chosen.candidate, (LaunchCandidate{LaunchForm::kGated, 64}));
  EXPECT_EQ(before.chosen.turnaround, microseconds(40) + scheduler::kGiveBackOverhead);
  EXPECT_FALSE(before.chosen.is_turnaround_measured);
  profile.OnGateDuration(kShape, true, microseconds(510));
  for (int i = 0; i < 3; ++i) profile.OnGateTurnaround(kShape, microseconds(25));
  const KernelReport report = profile.Report(kThreshold).at(0);
  EXPECT_EQ(report.chosen.duration, microseconds(510));
  EXPECT_EQ(report.original_duration, microseconds(500));
  EXPECT_EQ(report.chosen.turnaround, microseconds(25));
  EXPECT_TRUE(report.chosen.is_turnaround_measured);
  EXPECT_EQ(report.remark, "");
}

TEST(KernelProfileTest, SaysThatNoGateEndsItsBlocks) {
  KernelProfile profile("kernel", {}, "");
  Settle(profile, [](auto) { return microseconds(3000); });
  profile.UseGate(kShape, 64, microseconds(40), kThreshold);
  EXPECT_FALSE(profile.OnGateTurnaround(kShape, microseconds(2900)));
  EXPECT_FALSE(profile.OnGateTurnaround(kShape, microseconds(20))) << "by accident, perhaps";
  EXPECT_EQ(profile.Report(kThreshold).at(0).remark, "");
  EXPECT_TRUE(profile.OnGateTurnaround(kShape, microseconds(2900)));
  EXPECT_EQ(profile.Report(kThreshold).at(0).remark, "its blocks run on for long after a stop, and no gate ends them");
}

TEST(KernelProfileTest, SaysThatAKernelIsLeftAlone) {
  KernelProfile profile("kernel", {}, "");
  Settle(profile, [](auto) { return microseconds(10); });
  for (int i = 0; i < 20; ++i) {
    const auto use = profile.UseGate(kShape, 64, microseconds(10), kThreshold);
    if (use.is_sample) profile.OnGateDuration(kShape, use.is_gated, microseconds(use.is_gated ? 15 : 11));
  }
  EXPECT_FALSE(profile.UseGate(kShape, 64, microseconds(10), kThreshold).is_gated);
  const KernelReport report = profile.Report(kThreshold).at(0);
  EXPECT_EQ(report.chosen.candidate, kOriginal);
  EXPECT_EQ(report.remark, "short, and its gate would cost 5.0 us a launch");
}

TEST(KernelProfileTest, SaysWhyThereIsNoGate) {
  KernelProfile profile("kernel", {}, "its image holds no PTX");
  profile.SetGateRefusal("has entry fragments");
  profile.PlanGated(kShape);
  Settle(profile, [](auto) { return microseconds(500); });
  EXPECT_EQ(profile.Report(kThreshold).at(0).remark, "its image holds no PTX; no gate: has entry fragments");
}

TEST(KernelProfileTest, AnotherLifeGoesOnWhereThisOneEnded) {
  KernelProfile profile("kernel", {}, "");
  const auto duration_of = [](const LaunchCandidate& candidate) {
    return candidate.form == LaunchForm::kOriginal ? microseconds(500) : microseconds(90);
  };
  Settle(profile, duration_of);
  profile.SetVariants(Compiled());
  Settle(profile, duration_of);
  for (int i = 0; i < 3; ++i) profile.OnTurnaround(kShape, kPersistentBlocks, microseconds(5));
  ASSERT_TRUE(profile.has_news());
  const std::string saved = profile.Save();
  EXPECT_FALSE(profile.has_news());

  KernelProfile later("kernel", {}, "");
  later.Restore(saved);
  EXPECT_EQ(later.Save(), saved);
  // The code is not there yet, but nothing needs to be measured again.
  const auto first = later.PlanLaunch(kShape, kThreshold);
  EXPECT_EQ(first.candidate, kOriginal);
  EXPECT_FALSE(first.is_sample);
  EXPECT_TRUE(first.wants_variants);
  EXPECT_FALSE(later.PlanLaunch(kShape, kThreshold).wants_variants);
  later.SetVariants(Compiled());
  EXPECT_EQ(later.PlanLaunch(kShape, kThreshold).candidate, kPersistentBlocks);

  const std::string half = saved.substr(0, saved.rfind("]}")) + ",{\"grid\": [1]}]}";
  const std::vector<std::string> texts = {"", "{", "[]", "{\"shapes\": 1}", "{\"shapes\": [{\"grid\": [1]}]}", half};
  for (const std::string& text : texts) {
    KernelProfile damaged("kernel", {}, "");
    damaged.Restore(text);
    EXPECT_TRUE(damaged.PlanLaunch(kShape, kThreshold).is_sample) << text;
  }
}

TEST(KernelProfileTest, ShapesAreBounded) {
  KernelProfile profile("kernel", {}, "");
  LaunchShape shape = kShape;
  for (uint32_t i = 0; i < 2 * KernelProfile::kMaxShapes; ++i) {
    shape.grid[0] = i + 1;
    profile.PlanLaunch(shape, kThreshold);
  }
  EXPECT_EQ(profile.Report(kThreshold).size(), KernelProfile::kMaxShapes);
  EXPECT_FALSE(profile.PlanLaunch(shape, kThreshold).is_sample);
}

TEST(CompiledVariantsTest, SurviveTheDisk) {
  CompiledVariants variants;
  variants.persistent_blocks.image = {std::byte{1}, std::byte{0}, std::byte{255}};
  variants.persistent_blocks.entry = "kernel__persistent";
  variants.persistent_blocks.import_table = "table";
  variants.persistent_blocks.imports = {"a", "b"};
  variants.slices.refusal = "no";
  const auto bytes = Serialize(variants);
  const auto again = DeserializeVariants(bytes);
  ASSERT_TRUE(again) << again.error().ToString();
  EXPECT_EQ(again->persistent_blocks.image, variants.persistent_blocks.image);
  EXPECT_EQ(again->persistent_blocks.imports, variants.persistent_blocks.imports);
  EXPECT_EQ(again->slices.refusal, "no");
  EXPECT_FALSE(again->slices.exists());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DeserializeVariants(std::span(bytes).first(size))) << size;
  }
}

}  // namespace
}  // namespace tally::server
