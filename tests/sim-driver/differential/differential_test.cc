// A few hundred random kernels in every run; `ptx-differential --kernels 10000` for more.
#include "tests/sim-driver/differential/differential.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ptx-transforms/transform.h"
#include "sim-driver/engine/program.h"

namespace tally::differential {
namespace {

constexpr uint64_t kNumKernels = 400;

TEST(Differential, VariantsDoWhatOriginalsDo) {
  Differential differential;
  for (uint64_t seed = 1; differential.totals().kernels < kNumKernels; ++seed) {
    auto failure = differential.Check(GenerateModule(seed));
    ASSERT_FALSE(failure) << "seed " << failure->seed << ": " << failure->what << "\n" << GenerateModule(seed).text;
  }
  // The test is one only while kernels are transformed, and while workers do yield.
  const Totals& totals = differential.totals();
  EXPECT_GT(totals.launches.yields, kNumKernels / 2);
  EXPECT_GT(totals.pipelines.at("slice_grid").done, kNumKernels / 4);
  EXPECT_GT(totals.pipelines.at("slice_grid+import_globals").done, kNumKernels / 4);
  EXPECT_GT(totals.pipelines.at("persistent_blocks+yield_check").done, kNumKernels / 10);
  EXPECT_GT(totals.pipelines.at("persistent_blocks+yield_check+import_globals").done, kNumKernels / 10);
  EXPECT_GT(totals.pipelines.at("unify_barriers").done, kNumKernels / 20);
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

// ptxas takes the generated text, and what the passes make of it.
TEST(Differential, TheAssemblerTakesASample) {
  if (access(TALLY_TEST_PTXAS, X_OK) != 0) GTEST_SKIP() << "SKIPPED: no " TALLY_TEST_PTXAS;
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("tally_differential_" + std::to_string(getpid()) + ".ptx");
  ptx_transforms::TransformOptions options;
  options.pipelines = {{"slice_grid"}, {"persistent_blocks", "yield_check"}};
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const GeneratedModule module = GenerateModule(seed);
    auto transformed = ptx_transforms::TransformText(module.text, options);
    ASSERT_TRUE(transformed) << transformed.error().ToString();
    std::ofstream(file) << transformed->text;
    const size_t target = module.text.find("sm_");
    const std::string arch = module.text.substr(target, module.text.find('\n', target) - target);
    const std::string command =
        std::string(TALLY_TEST_PTXAS) + " -O0 -arch=" + arch + " " + file.string() + " -o /dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << "seed " << seed << ": " << command << "\n" << transformed->text;
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace tally::differential
