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
  EXPECT_THAT(WhyNot(Equal(2, 128), 65536, {.compute_capability = 75, .has_wgmma = false}), HasSubstr("not 7.5"));
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

// DLRM's bottom tower.
TEST(PipelinePlan, AFirstLayerMayBeWide) {
  const auto tower = [](int wide) {
    Chain chain = Equal(3, 256, 16);
    chain.layers[0].out = chain.layers[1].hidden = wide;
    return chain;
  };
  const Machine machine;
  for (const int wide : {384, 512, 1024}) EXPECT_EQ(WhyNot(tower(wide), 65536, machine), "");
  for (const int wide : {272, 320, 1152}) EXPECT_THAT(WhyNot(tower(wide), 65536, machine), HasSubstr("at its roof"));
  // No other layer, and nothing that needs all of its columns at once.
  Chain second = Equal(3, 256);
  second.layers[1].out = second.layers[2].hidden = 512;
  EXPECT_THAT(WhyNot(second, 65536, machine), HasSubstr("layer 1 gives 512 columns"));
  Chain alone = Equal(1, 512, 64);
  EXPECT_THAT(WhyNot(alone, 65536, machine), HasSubstr("at its roof"));
  Chain norm = tower(512);
  norm.layers[0].norm = Norm::kLayer;
  EXPECT_THAT(WhyNot(norm, 65536, machine), HasSubstr("at its roof"));
  Chain joined = tower(512);
  joined.layers[1].takes_input = TakesInput::kFirst;
  EXPECT_THAT(WhyNot(joined, 65536, machine), HasSubstr("at its roof"));
  // Panels of 64 columns and 128 rows at most pass through the ring; weights never stay, though these would fit.
  EXPECT_EQ(FirstHalf(tower(512).layers[0]), 64);
  Chain small = tower(384);
  small.layers[1].out = small.layers[2].hidden = small.layers[2].out = 16;
  const auto variants = VariantsFor(small, machine, 65536);
  ASSERT_FALSE(variants.empty());
  for (const Variant& variant : variants) EXPECT_FALSE(variant.resident);
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

// As measured (docs/results/pipelines.md): where many rows fill two warpgroups, those are quicker. Weights that fit are
// quicker in one warpgroup than streamed through two, if it has many tiles.
TEST(PipelinePlan, ChoosesWhatWasMeasuredToBeTheQuickest) {
  const auto chosen = [](const Chain& chain, int64_t rows) {
    return Choose(chain, {}, VariantsFor(chain, {}, 65536), rows).variant;
  };
  EXPECT_EQ(chosen(Equal(8, 256), 65536).warpgroups, 2);
  EXPECT_EQ(chosen(Equal(8, 128), 16384).warpgroups, 2);
  Chain edges = Equal(3, 128, 384);
  edges.layers[2].norm = Norm::kLayer;
  EXPECT_TRUE(chosen(edges, 65536).resident);
  EXPECT_FALSE(chosen(edges, 16384).resident);
}

// An A100, a GeForce of the 40 series, which has little shared memory, and a B200.
constexpr Machine kWithoutWgmma[] = {
    {.compute_capability = 80, .has_wgmma = false, .multiprocessors = 108, .shared_bytes = 166'912},
    {.compute_capability = 89, .has_wgmma = false, .multiprocessors = 128, .shared_bytes = 101'376},
    {.compute_capability = 100, .has_wgmma = false, .multiprocessors = 148, .shared_bytes = 232'448}};

TEST(PipelinePlan, GpusWithoutWgmmaHaveAFormOfTheirOwn) {
  for (const Machine& machine : kWithoutWgmma) {
    for (const Chain& chain : {Equal(2, 64), Equal(8, 128), Equal(8, 256)}) {
      EXPECT_EQ(WhyNot(chain, 65536, machine), "");
      for (const Variant& variant : VariantsFor(chain, machine, 65536)) {
        EXPECT_FALSE(variant.wgmma);
        EXPECT_LE(SharedBytes(chain, variant), machine.shared_bytes);
        EXPECT_EQ(Threads(variant), 128 * variant.warpgroups);  // all threads compute
        EXPECT_GE(variant.stages, variant.resident ? 1 : 2);
        EXPECT_LE(variant.stages, variant.resident ? 1 : 4);
      }
    }
  }
  // 160 KB of weights stay where they fit, and that is quicker than two warpgroups with a ring: 59 us instead of 77.
  Chain edges = Equal(3, 128, 384);
  edges.layers[2].norm = Norm::kLayer;
  const Machine as_hopper{.has_wgmma = false};
  EXPECT_TRUE(Choose(edges, as_hopper, VariantsFor(edges, as_hopper, 65536), 65536).variant.resident);
  EXPECT_TRUE(VariantsFor(Equal(3, 128, 384), kWithoutWgmma[2], 65536).front().resident);
  EXPECT_FALSE(VariantsFor(Equal(3, 128, 384), kWithoutWgmma[1], 65536).front().resident);
}

// The same with mma.sync on an H200, 65,536 rows.
TEST(PipelinePlan, PredictsWhatWasMeasuredWithoutWgmma) {
  const Machine machine{.has_wgmma = false};
  Chain nodes = Equal(3, 128, 256), tower = Equal(3, 256, 16);
  nodes.layers[2].norm = Norm::kLayer;
  tower.layers[0].out = tower.layers[1].hidden = 512;
  tower.layers[2].out = 64;
  const std::pair<Chain, double> measured[] = {{Equal(2, 64), 9.9}, {Equal(2, 128), 22.4},  {Equal(2, 256), 89.7},
                                               {nodes, 42.0},       {Equal(8, 128), 100.5}, {Equal(8, 256), 291.0},
                                               {tower, 112.7}};
  for (const auto& [chain, us] : measured) {
    SCOPED_TRACE(testing::Message() << chain.layers.size() << " of " << chain.layers.back().out);
    const double predicted = Choose(chain, machine, VariantsFor(chain, machine, 65536), 65536).predicted_us;
    EXPECT_GT(predicted, us * 0.75);
    EXPECT_LT(predicted, us * 1.25);
  }
}

// What was measured on an H200 (docs/results/pipelines.csv), in us, within 20 %.
TEST(PipelinePlan, PredictsWhatWasMeasured) {
  Chain edges = Equal(3, 128, 384), nodes = Equal(3, 128, 256), field = Equal(8, 256, 64), policy = Equal(3, 256, 128);
  edges.layers[2].norm = nodes.layers[2].norm = Norm::kLayer;
  field.layers[4].takes_input = TakesInput::kFirst;
  policy.layers[0].activation = policy.layers[1].activation = Activation::kSilu;
  policy.layers[2].out = 128;
  struct Case {
    const char* name;
    Chain chain;
    double us[3];
  };
  for (const Case& one :
       {Case{"2x64", Equal(2, 64), {3.1, 4.1, 8.8}}, Case{"2x128", Equal(2, 128), {4.1, 6.1, 17.0}},
        Case{"2x256", Equal(2, 256), {8.2, 12.8, 35.1}}, Case{"edges", edges, {6.1, 12.6, 30.2}},
        Case{"nodes", nodes, {5.8, 9.9, 22.8}}, Case{"field", field, {19.1, 28.8, 98.6}},
        Case{"8x128", Equal(8, 128), {9.8, 13.8, 38.9}}, Case{"8x256", Equal(8, 256), {19.6, 31.0, 104.2}},
        Case{"policy", policy, {11.5, 15.3, 47.4}}}) {
    for (const int k : {0, 1, 2}) {
      const int64_t rows = 4096 << 2 * k;
      SCOPED_TRACE(testing::Message() << one.name << ", " << rows << " rows");
      const double us = Choose(one.chain, {}, VariantsFor(one.chain, {}, rows), rows).predicted_us;
      EXPECT_GT(us, one.us[k] * 0.8);
      EXPECT_LT(us, one.us[k] * 1.2);
    }
  }
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
    if (i % 4 == 0 && chain.layers.size() > 1) {
      chain.layers[0] = {.hidden = chain.input(), .out = 128 * number(1, 9)};
      chain.layers[1].hidden = chain.layers[0].out;
    }
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
