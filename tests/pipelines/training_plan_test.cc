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
