// Inputs in golden/PASS/NAME.ptx, and what the pass makes of them in NAME.out.ptx, with the verdicts on top. All that
// comes out must assemble for every architecture that we support. TALLY_UPDATE_GOLDEN=1 writes the outputs anew; read
// the difference.
#include <gtest/gtest.h>

#include "ptx-transforms/opt/explain.h"
#include "ptx-transforms/transform.h"
#include "tests/ptx-transforms/passes/assembler.h"
#include "tests/ptx-transforms/syntax/test_modules.h"

namespace tally::ptx_transforms {
namespace {

std::vector<std::filesystem::path> Inputs() {
  std::vector<std::filesystem::path> inputs;
  for (const PassDescription& pass : Passes())
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(TALLY_TEST_PTX_GOLDEN) / pass.name))
      if (!entry.path().string().ends_with(".out.ptx")) inputs.push_back(entry.path());
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

std::string AsComment(const std::string& text) {
  std::string comment;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    comment += "// " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return comment;
}

class GoldenPasses : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(GoldenPasses, ComeOutAsRecorded) {
  const std::string pass = GetParam().parent_path().filename();
  const Result<Transformed> result =
      TransformText(ReadText(GetParam()), {.pipelines = {{pass}}, .placement = Placement::kReplace});
  ASSERT_TRUE(result) << result.error().ToString();
  const std::string text = AsComment(ExplainAsText(*result)) + result->text;
  const std::filesystem::path expected = std::filesystem::path(GetParam()).replace_extension(".out.ptx");
  if (std::getenv("TALLY_UPDATE_GOLDEN") != nullptr) std::ofstream(expected) << text;
  EXPECT_EQ(text, ReadText(expected));
}

TEST_P(GoldenPasses, Assemble) {
  const std::string pass = GetParam().parent_path().filename();
  for (const Placement placement : {Placement::kAdd, Placement::kOnly}) {
    const Result<Transformed> result =
        TransformText(ReadText(GetParam()), {.pipelines = {{pass}}, .placement = placement});
    ASSERT_TRUE(result) << result.error().ToString();
    const size_t place = result->text.find(".target sm_");
    const int lowest = std::stoi(result->text.substr(place + 11));
    for (const int arch : {75, 80, 86, 89, 90, 100, 120})
      if (arch >= lowest) {
        EXPECT_EQ(Assemble(result->text, fmt::format("sm_{}", arch)), "") << result->text;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenPasses, ::testing::ValuesIn(Inputs()), [](const auto& test) {
  return test.param.parent_path().filename().string() + "_" + test.param.stem().string();
});

// What nvcc makes of our corpus: every kernel is done or refused by name, and what is done assembles.
class CorpusPasses : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(CorpusPasses, AreDoneOrRefused) {
  const std::string text = ReadText(GetParam());
  const size_t place = text.find(".target ");
  const std::string arch = text.substr(place + 8, text.find_first_of(",\n", place) - place - 8);
  const bool is_whole = GetParam().filename().string().find("variables") == std::string::npos;  // else extern names
  for (const Placement placement : {Placement::kAdd, Placement::kOnly, Placement::kReplace}) {
    for (const char* pass : {"slice_grid", "yield_check", "gate_entry"}) {
      const Result<Transformed> result =
          TransformText(text, {.pipelines = {{pass, "import_globals"}}, .placement = placement});
      ASSERT_TRUE(result) << result.error().ToString();
      EXPECT_FALSE(result->variants.empty());
      for (const KernelVariant& variant : result->variants) {
        if (variant.is_done()) continue;
        EXPECT_NE(variant.refusal.code, "verifier") << variant.kernel << ": " << variant.refusal.sentence;
        EXPECT_NE(variant.refusal.sentence, "");
      }
      if (is_whole) {
        EXPECT_EQ(Assemble(result->text, arch), "") << pass;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CorpusPasses, ::testing::ValuesIn(CorpusFiles()),
                         [](const auto& test) { return test.param.stem().string(); });

}  // namespace
}  // namespace tally::ptx_transforms
