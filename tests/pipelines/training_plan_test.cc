#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "pipelines/plan/plan.h"
#include "pipelines/plan/training.h"

namespace tally::pipelines {
namespace {

Chain Of(std::vector<int> widths) {
  Chain chain;
  for (size_t i = 1; i < widths.size(); ++i)
    chain.layers.push_back({.hidden = widths[i - 1], .out = widths[i], .activation = Activation::kRelu});
  chain.layers.back().activation = Activation::kNone;
  return chain;
}

TEST(TrainingPlan, TheBackwardPassIsTheLayersInReverse) {
  Chain chain = Of({384, 128, 64, 32, 16});
  chain.layers[1].activation = Activation::kNone;
  EXPECT_TRUE(CheckTraining(chain, false));
  EXPECT_FALSE(CheckTraining(chain, true));
  const Chain backward = Backward(chain, false);
  EXPECT_TRUE(backward.transposed);
  EXPECT_THAT(backward.layers,
              ::testing::ElementsAre(Layer{.hidden = 16, .out = 32, .mask = Mask::kApplied, .saves = true},
                                     Layer{.hidden = 32, .out = 64, .saves = true},
                                     Layer{.hidden = 64, .out = 128, .mask = Mask::kApplied}));
  EXPECT_EQ(WeightsOf(chain, 0), 3u);
  EXPECT_EQ(WeightsOf(chain, 2), 1u);
  const Chain with_dx = Backward(Of({48, 128, 16}), true);
  EXPECT_THAT(with_dx.layers,
              ::testing::ElementsAre(Layer{.hidden = 16, .out = 128, .mask = Mask::kApplied, .saves = true},
                                     Layer{.hidden = 128, .out = 48}));
}

TEST(TrainingPlan, SavedValuesLieOneLayerAfterAnotherAndMasksBehindThem) {
  const Chain chain = Of({64, 128, 80, 16});
  EXPECT_EQ(GradientsAt(chain, 0, 100), 0);
  EXPECT_EQ(GradientsAt(chain, 1, 100), 100 * 128 * 2);
  EXPECT_EQ(GradientBytes(chain, 100), 100 * (128 + 80) * 2);
  // Two tiles; a word for each thread and 64 columns.
  EXPECT_EQ(MaskAt(chain, 0, 100), GradientBytes(chain, 100));
  EXPECT_EQ(MaskAt(chain, 1, 100), GradientBytes(chain, 100) + 2 * 2 * 512);
  EXPECT_EQ(SavedBytes(chain, 100), GradientBytes(chain, 100) + 2 * (2 + 2) * 512);
  EXPECT_EQ(SavedBytes(chain, 0), 0);
}

// Transposed panels come in whole boxes of 64 columns, and there is no bias.
TEST(TrainingPlan, WeightsOfABackwardPassTakeWholeBoxes) {
  const Variant resident;
  const int slot = 64 * 64 * 2, barriers = 8 * 3;
  EXPECT_EQ(SharedBytes(Backward(Of({80, 64, 16}), true), resident),
            (64 * 64 + 64 * 128) * 2 + slot + barriers);  // 16 to 64, 64 to 80
}

TEST(TrainingPlan, WhatIsSavedTakesTime) {
  const Chain chain = Of(std::vector(9, 256));
  const auto predicted = [](const Chain& of) { return Choose(of, {}, VariantsFor(of, {}, 65536), 65536).predicted_us; };
  const double alone = predicted(chain);
  EXPECT_GT(predicted(Forward(chain)), 1.2 * alone);
  EXPECT_GT(predicted(Backward(chain, true)), 1.2 * alone);
}

// What was measured on an H200 (docs/results/pipelines.md), in us: forward, backward; 16,384 and 65,536 rows.
TEST(TrainingPlan, PredictsWhatWasMeasured) {
  struct Case {
    const char* name;
    Chain chain;
    bool with_dx;
    double us[4];
  };
  for (const Case& one : {Case{"4x64", Of(std::vector(5, 64)), true, {7.9, 6.9, 16.6, 17.2}},
                          Case{"2x128", Of(std::vector(3, 128)), true, {8.0, 8.1, 18.9, 19.9}},
                          Case{"nodes", Of({256, 128, 128, 128}), true, {11.9, 11.6, 31.0, 33.8}},
                          Case{"edges", Of({384, 128, 128, 128}), false, {14.6, 7.9, 42.6, 21.8}},
                          Case{"8x128", Of(std::vector(9, 128)), true, {21.7, 20.3, 64.2, 69.2}},
                          Case{"2x256", Of(std::vector(3, 256)), true, {15.6, 13.8, 46.5, 41.3}},
                          Case{"8x256", Of(std::vector(9, 256)), true, {47.7, 43.1, 154.9, 150.4}}}) {
    for (const int k : {0, 1, 2, 3}) {
      const int64_t rows = k < 2 ? 16384 : 65536;
      const Chain pass = k % 2 == 0 ? Forward(one.chain) : Backward(one.chain, one.with_dx);
      SCOPED_TRACE(testing::Message() << one.name << (k % 2 == 0 ? " forward, " : " backward, ") << rows << " rows");
      const Plan plan = Choose(pass, {}, VariantsFor(pass, {}, rows), rows);
      EXPECT_GT(plan.predicted_us, one.us[k] * 0.8);
      EXPECT_LT(plan.predicted_us, one.us[k] * 1.25);
      // Two were quicker than one wherever memory was the bound.
      EXPECT_GE(plan.variant.warpgroups, 2);
    }
  }
}

// Both passes of whatever is accepted fit.
TEST(TrainingPlan, BothPassesFit) {
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<int> widths(1, 8 * static_cast<int>(1 + random() % 48));
    for (uint32_t l = 2 + random() % 8; l > 0; --l) widths.push_back(16 * static_cast<int>(1 + random() % 16));
    const Chain chain = Of(widths);
    const bool with_dx = random() % 2 == 0;
    if (!CheckTraining(chain, with_dx)) continue;
    for (const Chain& pass : {Forward(chain), Backward(chain, with_dx)}) {
      const Machine machine;
      if (!Check(pass, machine, 65536)) continue;
      ++accepted;
      for (const Variant& variant : VariantsFor(pass, machine, 65536))
        EXPECT_LE(SharedBytes(pass, variant), machine.shared_bytes);
    }
  }
  EXPECT_GT(accepted, 3000);
}

}  // namespace
}  // namespace tally::pipelines
