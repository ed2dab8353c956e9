// A few hundred random kernels in every run; `ptx-differential --kernels 10000` for more.
#include "tests/sim-driver/differential/differential.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim-driver/engine/program.h"
#include "tests/sim-driver/differential/assembly.h"

namespace tally::differential {
namespace {

constexpr uint64_t kNumKernels = 400;

TEST(Differential, VariantsDoWhatOriginalsDo) {
  Differential differential;
  for (uint64_t seed = 1; differential.totals().kernels < kNumKernels; ++seed) {
    auto failure = differential.Check(GenerateModule(seed));
    ASSERT_FALSE(failure) << "seed " << failure->seed << ": " << failure->what << "\n" << GenerateModule(seed).text;
  }
  // The test is one only while kernels are transformed, and while persistent blocks do yield.
  const Totals& totals = differential.totals();
  EXPECT_GT(totals.launches.yields, kNumKernels / 2);
  EXPECT_GT(totals.pipelines.at("slice_grid").done, kNumKernels / 4);
  EXPECT_GT(totals.pipelines.at("slice_grid+import_globals").done, kNumKernels / 4);
  EXPECT_GT(totals.pipelines.at("persistent_blocks+yield_check").done, kNumKernels / 10);
  EXPECT_GT(totals.pipelines.at("persistent_blocks+yield_check+import_globals").done, kNumKernels / 10);
  EXPECT_GT(totals.pipelines.at("unify_barriers").done, kNumKernels / 20);
  EXPECT_GT(totals.launches.stops, kNumKernels / 4);
  EXPECT_EQ(totals.pipelines.at("gate_entry").refused.size() + totals.pipelines.at("gate_entry").wrong_shape, 0u);
  EXPECT_GT(totals.pipelines.at("gate_entry+import_globals").done, kNumKernels / 4);
}

TEST(Differential, TheSameSeedMakesTheSameModule) {
  EXPECT_EQ(GenerateModule(17).text, GenerateModule(17).text);
  EXPECT_NE(GenerateModule(17).text, GenerateModule(18).text);
}

// A kernel whose result depends on the order of blocks must be found out: else the reordering does nothing.
TEST(Differential, AnOrderThatShowsIsSeen) {
  GeneratedModule module = GenerateModule(1);
  module.text =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 words, .param .u64 counts){\n"
      ".reg .b64 %rd<6>; .reg .b32 %r<6>;\nld.param.u64 %rd1, [words]; ld.param.u64 %rd2, [counts];\n"
      "mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd3, %rd2;\n"
      "red.global.add.u32 [%rd3], 1;\nst.global.u32 [%rd1], %r1;\nret;\n}\n";
  GeneratedKernel kernel;
  kernel.name = "k";
  kernel.grid = {16, 1, 1};
  kernel.block = {32, 1, 1};
  kernel.parameters = {{true, Buffer::kThreads, {}}, {true, Buffer::kCounts, {}}};
  module.kernels = {kernel};
  auto failure = Differential().Check(module);
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->what.find("depends on the order"), std::string::npos) << failure->what;
}

// A few for all architectures; `ptx-differential --assemble` for more.
TEST(Differential, TheAssemblerTakesASample) {
  if (access(TALLY_TEST_PTXAS, X_OK) != 0) GTEST_SKIP() << "SKIPPED: no " TALLY_TEST_PTXAS;
  constexpr uint64_t kNumModules = 3;
  Assembly assembly(TALLY_TEST_PTXAS);
  for (uint64_t seed = 1; seed <= kNumModules; ++seed) {
    const auto problem = assembly.Check(GenerateModule(seed));
    ASSERT_FALSE(problem) << "seed " << seed << ": " << *problem;
  }
  EXPECT_GT(assembly.num_assembled(), 4 * kNumModules);
}

// It is the assembler that decides.
TEST(Differential, WhatTheAssemblerRefusesIsSeen) {
  Assembly assembly("false");
  EXPECT_NE(assembly.Check(GenerateModule(1)).value_or("").find("ptxas refuses the original"), std::string::npos);
}

}  // namespace
}  // namespace tally::differential
