#include "scheduler/variant_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using Nanoseconds = std::chrono::nanoseconds;

constexpr Nanoseconds kThreshold = Nanoseconds(31'600);
const LaunchCandidate kOriginal{};

void Sample(VariantChoice& choice, const LaunchCandidate& candidate, Nanoseconds duration) {
  for (uint32_t i = 0; i < VariantChoice::kSamplesEach; ++i) choice.OnDuration(candidate, duration);
}

// Runs launches against a model of the kernel until everything has been tried.
template <typename DurationOf>
void Settle(VariantChoice& choice, DurationOf duration_of) {
  for (int i = 0; i < 100 && !choice.is_settled(); ++i) {
    const auto next = choice.NextLaunch(kThreshold);
    ASSERT_TRUE(next.is_sample);
    choice.OnDuration(next.candidate, duration_of(next.candidate));
  }
  ASSERT_TRUE(choice.is_settled());
}

TEST(VariantChoiceTest, ShortKernelsStayAsTheyAre) {
  VariantChoice choice(1000);
  for (uint32_t i = 0; i < VariantChoice::kSamplesEach; ++i) {
    const auto next = choice.NextLaunch(kThreshold);
    EXPECT_EQ(next.candidate, kOriginal);
    EXPECT_TRUE(next.is_sample);
    choice.OnDuration(next.candidate, microseconds(20));
  }
  EXPECT_FALSE(choice.WantsVariants(kThreshold));
  EXPECT_FALSE(choice.NextLaunch(kThreshold).is_sample);
  EXPECT_EQ(choice.PieceOf(kOriginal), microseconds(20));
  // A lower threshold at run time asks for more.
  EXPECT_TRUE(choice.WantsVariants(microseconds(5)));
}

TEST(VariantChoiceTest, TriesEverythingThenTakesTheFastestThatMeetsTheThreshold) {
  VariantChoice choice(20'000);
  Sample(choice, kOriginal, microseconds(1000));
  ASSERT_TRUE(choice.WantsVariants(kThreshold));
  const auto candidates = CandidatesFor({20'000, 100, 4, true}, microseconds(1000), kThreshold);
  choice.SetCandidates(candidates, kThreshold);
  EXPECT_FALSE(choice.WantsVariants(kThreshold));
  Settle(choice, [](const LaunchCandidate& candidate) -> Nanoseconds {
    // Slices cost 4 us each; persistent blocks 3 % and more the fewer they are.
    if (candidate.form == LaunchForm::kSlices) return microseconds(1000 + 4 * candidate.degree);
    if (candidate.form == LaunchForm::kPersistentBlocks) return microseconds(1030 + (400 - candidate.degree));
    return microseconds(1000);
  });
  EXPECT_EQ(choice.Best(kThreshold).candidate, (LaunchCandidate{LaunchForm::kPersistentBlocks, 400}));
  // All the time in the world: the original is the fastest.
  EXPECT_EQ(choice.Best(microseconds(5000)).candidate, kOriginal);
  // Nothing gives back within a nanosecond: the soonest does.
  const auto soonest = choice.Best(Nanoseconds(1));
  for (const auto& measured : choice.Everything()) EXPECT_GE(measured.turnaround, soonest.turnaround);
}

TEST(VariantChoiceTest, MeasuredTurnaroundOutranksTheEstimate) {
  VariantChoice choice(10'000);
  const LaunchCandidate persistent_blocks{LaunchForm::kPersistentBlocks, 100}, slices{LaunchForm::kSlices, 64};
  choice.SetCandidates(std::vector{persistent_blocks, slices}, kThreshold);
  Sample(choice, kOriginal, microseconds(1000));
  Sample(choice, persistent_blocks, microseconds(1010));
  Sample(choice, slices, microseconds(1200));
  EXPECT_EQ(choice.Best(kThreshold).candidate, persistent_blocks);
  choice.OnTurnaround(persistent_blocks, microseconds(80));
  choice.OnTurnaround(persistent_blocks, microseconds(80));
  EXPECT_EQ(choice.Best(kThreshold).candidate, persistent_blocks) << "two may be an accident";
  choice.OnTurnaround(persistent_blocks, microseconds(80));
  EXPECT_EQ(choice.Best(kThreshold).candidate, slices);
  for (int i = 0; i < 6; ++i) choice.OnTurnaround(persistent_blocks, microseconds(20));
  EXPECT_EQ(choice.Best(kThreshold).candidate, persistent_blocks) << "old ones are forgotten";
  choice.OnTurnaround(persistent_blocks, microseconds(5000));
  EXPECT_EQ(choice.Best(kThreshold).candidate, persistent_blocks) << "one that took long by accident does not decide";
}

// 40 slices of a kernel of 1200 us meet 31.6 us by the arithmetic; with what is around a slice they do not.
TEST(VariantChoiceTest, WhatIsAroundAPieceCountsToo) {
  VariantChoice choice(100'000);
  const LaunchCandidate few{LaunchForm::kSlices, 40}, many{LaunchForm::kSlices, 80},
      persistent_blocks{LaunchForm::kPersistentBlocks, 500};
  choice.SetCandidates(std::vector{few, many, persistent_blocks}, kThreshold);
  Sample(choice, kOriginal, microseconds(1200));
  Sample(choice, few, microseconds(1210));
  Sample(choice, many, microseconds(1250));
  Sample(choice, persistent_blocks, microseconds(1300));
  EXPECT_EQ(choice.Of(few).turnaround, Nanoseconds(1'210'000) / 40 + kGiveBackOverhead);
  EXPECT_EQ(choice.Best(kThreshold).candidate, many);
  // Slices are not equal: those that were timed by themselves say so.
  for (int i = 0; i < 3; ++i) choice.OnSlice(many, microseconds(40));
  EXPECT_EQ(choice.PieceOf(many), microseconds(40));
  EXPECT_EQ(choice.Best(kThreshold).candidate, persistent_blocks);
}

TEST(VariantChoiceTest, WhereNothingMeetsTheThresholdSoonerMayCostSoMuch) {
  VariantChoice choice(10'000);
  const LaunchCandidate slices{LaunchForm::kSlices, 400}, persistent_blocks{LaunchForm::kPersistentBlocks, 100};
  choice.SetCandidates(std::vector{slices, persistent_blocks}, kThreshold);
  Sample(choice, kOriginal, microseconds(10'000));
  Sample(choice, slices, microseconds(45'000));
  Sample(choice, persistent_blocks, microseconds(39'000));
  EXPECT_LT(choice.Of(slices).turnaround, choice.Of(persistent_blocks).turnaround);
  EXPECT_EQ(choice.Best(microseconds(10)).candidate, persistent_blocks);
  VariantChoice dear(10'000);
  dear.SetCandidates(std::vector{slices, persistent_blocks}, kThreshold);
  Sample(dear, kOriginal, microseconds(10'000));
  Sample(dear, slices, microseconds(45'000));
  Sample(dear, persistent_blocks, microseconds(50'000));
  EXPECT_EQ(dear.Best(microseconds(10)).candidate, kOriginal);
  EXPECT_EQ(dear.Best(microseconds(120)).candidate, slices) << "what meets it may cost what it costs";
}

TEST(VariantChoiceTest, APieceIsGuessedUntilItWasMeasured) {
  VariantChoice choice(1000);
  const LaunchCandidate slices{LaunchForm::kSlices, 20};
  EXPECT_EQ(choice.PieceOf(kOriginal), Nanoseconds(0)) << "not known";
  choice.SetCandidates(std::vector{slices}, kThreshold);
  Sample(choice, kOriginal, microseconds(400));
  EXPECT_EQ(choice.PieceOf(slices), microseconds(20));
  Sample(choice, slices, microseconds(600));
  EXPECT_EQ(choice.PieceOf(slices), microseconds(30));
}

// Whatever is measured: what is chosen meets the threshold if anything does, and is the fastest of those.
TEST(VariantChoiceProperty, ChoosesTheFastestThatMeetsTheThreshold) {
  std::mt19937 random(5);
  for (int round = 0; round < 5000; ++round) {
    VariantChoice choice(1 + random() % 100'000);
    std::vector<LaunchCandidate> candidates;
    for (uint32_t i = 0; i < 1 + random() % 6; ++i) {
      candidates.push_back({random() % 2 == 0 ? LaunchForm::kSlices : LaunchForm::kPersistentBlocks, 2 + i});
    }
    choice.SetCandidates(candidates, kThreshold);
    Sample(choice, kOriginal, Nanoseconds(1000 + random() % 3'000'000));
    for (const LaunchCandidate& candidate : candidates) {
      Sample(choice, candidate, Nanoseconds(1000 + random() % 15'000'000));
      for (uint32_t i = random() % 10; i > 0; --i) choice.OnTurnaround(candidate, Nanoseconds(random() % 200'000));
    }
    const Nanoseconds threshold(random() % 100'000);
    const auto best = choice.Best(threshold);
    const bool meets = best.turnaround <= threshold;
    for (const auto& other : choice.Everything()) {
      if (other.turnaround <= threshold) {
        ASSERT_TRUE(meets) << round;
        ASSERT_LE(best.duration, other.duration) << round;
      } else if (!meets && other.duration <= VariantChoice::kMostSlowdown * choice.original().duration) {
        ASSERT_LE(best.turnaround, other.turnaround) << round;
      }
    }
    if (!meets) {
      ASSERT_LE(best.duration, VariantChoice::kMostSlowdown * choice.original().duration) << round;
    }
  }
}

TEST(VariantChoiceTest, AnOutlierDoesNotDecide) {
  VariantChoice choice(100);
  choice.OnDuration(kOriginal, microseconds(20));
  choice.OnDuration(kOriginal, microseconds(9000));
  choice.OnDuration(kOriginal, microseconds(21));
  EXPECT_EQ(choice.Best(kThreshold).duration, microseconds(21));
  EXPECT_FALSE(choice.WantsVariants(kThreshold));
}

TEST(VariantChoiceTest, NoticesThatAKernelHasBecomeSlow) {
  VariantChoice choice(100);
  Sample(choice, kOriginal, microseconds(10));
  int num_samples = 0;
  for (uint32_t i = 0; i < 8 * VariantChoice::kLaunchesBetweenSamples; ++i) {
    const auto next = choice.NextLaunch(kThreshold);
    if (!next.is_sample) continue;
    ++num_samples;
    choice.OnDuration(next.candidate, microseconds(100));
  }
  EXPECT_EQ(num_samples, 8);
  EXPECT_TRUE(choice.WantsVariants(kThreshold));
}

TEST(VariantChoiceTest, AMuchShorterThresholdBringsFurtherCandidates) {
  VariantChoice choice(100'000);
  Sample(choice, kOriginal, microseconds(1000));
  const LaunchCandidate few{LaunchForm::kSlices, 40}, many{LaunchForm::kSlices, 500};
  choice.SetCandidates(std::vector{few}, kThreshold);
  Sample(choice, few, microseconds(1010));
  EXPECT_FALSE(choice.WantsVariants(kThreshold));
  EXPECT_FALSE(choice.WantsVariants(microseconds(20))) << "about the same";
  const Nanoseconds shorter = microseconds(10);
  ASSERT_TRUE(choice.WantsVariants(shorter));
  choice.SetCandidates(std::vector{few, many}, shorter);
  EXPECT_FALSE(choice.WantsVariants(shorter));
  EXPECT_EQ(choice.Everything().size(), 3u) << "what was known stays";
  Sample(choice, many, microseconds(1400));
  // Each program gets what suits its own threshold, from the same measurements.
  EXPECT_EQ(choice.Best(kThreshold).candidate, few);
  EXPECT_EQ(choice.Best(shorter).candidate, many);
  EXPECT_EQ(choice.Best(microseconds(2000)).candidate, kOriginal);
  EXPECT_FALSE(choice.WantsVariants(kThreshold)) << "a longer one again needs nothing new";
  VariantChoice later(100'000);
  later.Restore(choice.Everything(), choice.candidates_for());
  EXPECT_FALSE(later.WantsVariants(shorter));
  EXPECT_TRUE(later.WantsVariants(microseconds(5)));
}

TEST(VariantChoiceTest, ARestoredEstimateStaysAnEstimate) {
  const LaunchCandidate slices{LaunchForm::kSlices, 40}, persistent_blocks{LaunchForm::kPersistentBlocks, 100};
  VariantChoice choice(10'000);
  choice.SetCandidates(std::vector{slices, persistent_blocks}, kThreshold);
  Sample(choice, kOriginal, microseconds(1000));
  Sample(choice, slices, microseconds(1200));
  Sample(choice, persistent_blocks, microseconds(1100));
  for (int i = 0; i < 3; ++i) choice.OnTurnaround(persistent_blocks, microseconds(25));
  VariantChoice later(10'000);
  later.Restore(choice.Everything(), choice.candidates_for());
  EXPECT_TRUE(later.Of(persistent_blocks).is_turnaround_measured);
  EXPECT_FALSE(later.Of(slices).is_turnaround_measured);
  EXPECT_FALSE(later.original().is_turnaround_measured);
  // It follows what is measured now, as an estimate does; what was measured does not.
  for (int i = 0; i < 8; ++i) {
    later.OnDuration(slices, microseconds(2400));
    later.OnDuration(persistent_blocks, microseconds(2400));
    later.OnDuration(kOriginal, microseconds(300));
  }
  EXPECT_EQ(later.Of(slices).turnaround, microseconds(60) + kGiveBackOverhead);
  EXPECT_EQ(later.Of(persistent_blocks).turnaround, microseconds(25));
  EXPECT_EQ(later.original().turnaround, microseconds(300) + kGiveBackOverhead);
}

TEST(VariantChoiceTest, RestoresWhatWasMeasured) {
  VariantChoice choice(1000);
  choice.SetCandidates(std::vector<LaunchCandidate>{{LaunchForm::kSlices, 16}}, kThreshold);
  Sample(choice, kOriginal, microseconds(400));
  Sample(choice, {LaunchForm::kSlices, 16}, microseconds(440));
  VariantChoice later(1000);
  later.Restore(choice.Everything(), choice.candidates_for());
  EXPECT_TRUE(later.is_settled());
  EXPECT_EQ(later.Best(kThreshold).candidate, (LaunchCandidate{LaunchForm::kSlices, 16}));
  EXPECT_EQ(later.Best(kThreshold).duration, microseconds(440));
  EXPECT_FALSE(later.NextLaunch(kThreshold).is_sample);
}

TEST(CandidatesForTest, AreWithinTheirBounds) {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    LaunchSize size;
    size.num_blocks = 1 + random() % (1u << (random() % 24));
    size.num_multiprocessors = 1 + random() % 200;
    size.max_blocks_per_multiprocessor = random() % 33;
    size.can_slice = random() % 2 == 0;
    const auto candidates = CandidatesFor(size, microseconds(random() % 100'000), microseconds(random() % 1000));
    for (size_t a = 0; a < candidates.size(); ++a) {
      const LaunchCandidate& candidate = candidates[a];
      ASSERT_GE(candidate.degree, 1u);
      if (candidate.form == LaunchForm::kSlices) {
        ASSERT_TRUE(size.can_slice);
        ASSERT_LE(candidate.degree, size.num_blocks);
      } else {
        ASSERT_EQ(candidate.form, LaunchForm::kPersistentBlocks);
        ASSERT_LT(candidate.degree, size.num_blocks);
        ASSERT_EQ(candidate.degree % size.num_multiprocessors, 0u);
        ASSERT_LE(candidate.degree, size.num_multiprocessors * size.max_blocks_per_multiprocessor);
      }
      for (size_t b = 0; b < a; ++b) ASSERT_NE(candidates[b], candidate);
    }
    ASSERT_LE(candidates.size(), 7u);
  }
}

TEST(CandidatesForTest, OneSliceOfTheFirstDegreeMeetsTheThreshold) {
  const auto candidates = CandidatesFor({100'000, 132, 0, true}, microseconds(1000), kThreshold);
  ASSERT_EQ(candidates.size(), 3u);
  EXPECT_EQ(candidates[0], (LaunchCandidate{LaunchForm::kSlices, 40}));
  EXPECT_LE(microseconds(1000) / 40 + kGiveBackOverhead, kThreshold);
  EXPECT_EQ(candidates[2], (LaunchCandidate{LaunchForm::kSlices, 160}));
}

}  // namespace
}  // namespace tally::scheduler
