#include "pipelines/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tally::pipelines {
namespace {

using ::testing::HasSubstr;

Chain Equal(int layers, int width, int input = 0) {
  Chain chain;
  for (int i = 0; i < layers; ++i) {
    chain.layers.push_back(
        {.hidden = i == 0 && input != 0 ? input : width, .out = width, .activation = Activation::kRelu});
  }
  return chain;
}

std::string WhyNot(const Chain& chain, int64_t rows = 65536, const Machine& machine = {}) {
  const auto checked = Check(chain, machine, rows);
  return checked ? "" : checked.error();
}

TEST(PipelinePlan, SaysWhyAChainIsRefused) {
  EXPECT_THAT(WhyNot({}), HasSubstr("no linear layer"));
  EXPECT_THAT(WhyNot(Equal(33, 64)), HasSubstr("32 at most"));
  EXPECT_THAT(WhyNot(Equal(2, 272)), HasSubstr("the library is at its roof"));
  EXPECT_THAT(WhyNot(Equal(2, 24)), HasSubstr("multiple of 16"));
  EXPECT_THAT(WhyNot(Equal(2, 64, 13)), HasSubstr("13 columns of input"));
  EXPECT_THAT(WhyNot(Equal(2, 64, 520)), HasSubstr("512 at most"));
  EXPECT_THAT(WhyNot(Equal(2, 128), 0), HasSubstr("0 rows"));
  EXPECT_THAT(WhyNot(Equal(2, 128), 64), HasSubstr("less than a quarter"));
  EXPECT_THAT(WhyNot(Equal(2, 128), 65536, {.compute_capability = 80}), HasSubstr("not 8.0"));
  Chain gap = Equal(2, 64);
  gap.layers[1].hidden = 128;
  EXPECT_THAT(WhyNot(gap), HasSubstr("layer 1 takes 128 hidden columns, and layer 0 gives 64"));
  Chain residual = Equal(2, 64, 128);
  residual.layers[1].residual = true;
  EXPECT_THAT(WhyNot(residual), HasSubstr("the input to be added has 128"));
  Chain twice = Equal(2, 64);
  twice.layers[0].takes_input = TakesInput::kFirst;
  EXPECT_THAT(WhyNot(twice), HasSubstr("takes the input anyway"));
  EXPECT_EQ(WhyNot(Equal(8, 256)), "");
}

TEST(PipelinePlan, WeightsThatFitStayAndOthersAreStreamed) {
  const Machine machine;
  for (const Variant& variant : VariantsFor(Equal(2, 128), machine, 65536)) EXPECT_TRUE(variant.resident);
  const auto variants = VariantsFor(Equal(8, 256), machine, 65536);
  ASSERT_FALSE(variants.empty());
  for (const Variant& variant : variants) EXPECT_FALSE(variant.resident);
}

TEST(PipelinePlan, OneTileForEachMultiprocessorNeedsNoSecondWarpgroup) {
  for (const Variant& variant : VariantsFor(Equal(2, 64), {}, 64 * 132)) EXPECT_EQ(variant.warpgroups, 1);
  EXPECT_GT(VariantsFor(Equal(2, 64), {}, 64 * 133).size(), 1u);
}

// As measured on an H100 (docs/results/pipelines.md): where many rows fill two warpgroups, those are twice as quick.
// Weights that fit are quicker in one warpgroup than streamed through two.
TEST(PipelinePlan, ChoosesWhatWasMeasuredToBeTheQuickest) {
  const auto chosen = [](const Chain& chain, int64_t rows) {
    return Choose(chain, {}, VariantsFor(chain, {}, 65536), rows).variant;
  };
  EXPECT_EQ(chosen(Equal(8, 256), 65536).warpgroups, 2);
  EXPECT_EQ(chosen(Equal(8, 128), 16384).warpgroups, 2);
  EXPECT_TRUE(chosen(Equal(3, 128, 384), 65536).resident);
}

// What was measured, in us, within 40 %: the model ranks variants, it is no promise.
TEST(PipelinePlan, PredictsWhatWasMeasured) {
  const auto predicted = [](const Chain& chain, int64_t rows) {
    return Choose(chain, {}, VariantsFor(chain, {}, 65536), rows).predicted_us;
  };
  const auto expect = [](double us, double measured) {
    EXPECT_GT(us, measured * 0.6);
    EXPECT_LT(us, measured * 1.4);
  };
  expect(predicted(Equal(3, 128, 384), 65536), 32.1);
  expect(predicted(Equal(2, 128), 65536), 18.6);
}

// Random chains: whatever is accepted fits, whatever Choose names is among the variants.
TEST(PipelinePlan, WhatIsChosenFits) {
  std::mt19937 random(7);
  const auto number = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    Chain chain;
    int hidden = 8 * number(1, 70);
    for (int l = number(1, 10); l > 0; --l) {
      const int out = 16 * number(1, 17);
      chain.layers.push_back(
          {.hidden = hidden,
           .out = out,
           .norm = static_cast<Norm>(number(0, 2)),
           .takes_input = chain.layers.empty() ? TakesInput::kNo : static_cast<TakesInput>(number(0, 2))});
      hidden = out;
    }
    const int64_t rows = number(1, 200000);
    const Machine machine{.multiprocessors = number(1, 150)};
    if (!Check(chain, machine, rows)) continue;
    ++accepted;
    const auto variants = VariantsFor(chain, machine, rows);
    for (const Variant& variant : variants) {
      EXPECT_LE(SharedBytes(chain, variant), machine.shared_bytes);
    }
    for (const int64_t some : {int64_t{1}, rows / 2 + 1, rows}) {
      const Plan plan = Choose(chain, machine, variants, some);
      EXPECT_THAT(variants, ::testing::Contains(plan.variant));
      EXPECT_GE(plan.grid, 1);
      EXPECT_LE(plan.grid, machine.multiprocessors);
      for (const Variant& other : variants) {
        EXPECT_LE(plan.predicted_us, Choose(chain, machine, {other}, some).predicted_us);
      }
    }
  }
  EXPECT_GT(accepted, 2000);
}

}  // namespace
}  // namespace tally::pipelines
