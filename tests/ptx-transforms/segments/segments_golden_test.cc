// Kernels in golden/segments/NAME.ptx, and what ptx-opt --segments says of them in NAME.segments.txt; lines
// `// launch KERNEL: LAUNCH` ask for boxes as well. TALLY_UPDATE_GOLDEN=1 writes the texts anew; read the difference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ptx-transforms/opt/launch_text.h"
#include "ptx-transforms/opt/segments_json.h"
#include "ptx-transforms/segments.h"
#include "tests/ptx-transforms/passes/assembler.h"
#include "tests/ptx-transforms/syntax/test_modules.h"

namespace tally::ptx_transforms {
namespace {

std::vector<std::filesystem::path> SegmentInputs() {
  std::vector<std::filesystem::path> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(TALLY_TEST_PTX_GOLDEN "/segments"))
    if (entry.path().extension() == ".ptx") inputs.push_back(entry.path());
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

std::vector<std::string> LaunchesOf(const std::string& text, const std::string& kernel) {
  std::vector<std::string> launches;
  const std::string start = "// launch " + kernel + ": ";
  for (size_t at = text.find(start); at != std::string::npos; at = text.find(start, at + 1))
    launches.push_back(text.substr(at + start.size(), text.find('\n', at) - at - start.size()));
  return launches;
}

std::string TextOf(const std::string& ptx) {
  std::string text;
  for (const KernelSegments& segments : FindSegments(MustParse(ptx))) {
    text += SegmentsAsText(segments);
    for (const std::string& launch : LaunchesOf(ptx, segments.kernel)) {
      const Result<std::string> boxes = LaunchAsText(segments, launch);
      EXPECT_TRUE(boxes) << boxes.error().message();
      if (boxes) text += *boxes;
    }
  }
  return text;
}

class GoldenSegments : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(GoldenSegments, AreAsRecorded) {
  const std::string text = TextOf(ReadText(GetParam()));
  const std::filesystem::path expected = std::filesystem::path(GetParam()).replace_extension(".segments.txt");
  if (std::getenv("TALLY_UPDATE_GOLDEN") != nullptr) std::ofstream(expected) << text;
  EXPECT_EQ(text, ReadText(expected));
}

INSTANTIATE_TEST_SUITE_P(All, GoldenSegments, ::testing::ValuesIn(SegmentInputs()),
                         [](const auto& test) { return test.param.stem().string(); });

TEST(Segments, EveryClassAndEveryBarrierIsShown) {
  std::set<std::string> codes, classes;
  for (const auto& input : SegmentInputs()) {
    for (const KernelSegments& segments : FindSegments(MustParse(ReadText(input)))) {
      classes.insert(VerdictOf(segments));
      for (const SegmentBarrier& barrier : BarriersOf(segments)) {
        codes.insert(barrier.code);
        EXPECT_FALSE(BarrierMeaning(barrier.code).empty()) << barrier.code;
      }
    }
  }
  EXPECT_EQ(classes, (std::set<std::string>{"C0", "C1", "C2", "C3", "C4", "barrier", "none"}));
  for (const std::string_view code : BarrierCodes()) {
    if (code == "cooperative" || code == "too-large") continue;  // of a launch; below
    EXPECT_TRUE(codes.contains(std::string(code))) << code;
  }
}

TEST(Segments, ACooperativeLaunchIsABarrier) {
  const auto all = FindSegments(MustParse(".version 8.0\n.target sm_80\n.address_size 64\n.entry k() {\nret;\n}\n"));
  struct NoMemory final : SegmentMemory {
    MemorySpan AllocationOf(uint64_t) const override { return {}; }
    MemorySpan SymbolOf(std::string_view) const override { return {}; }
  };
  SegmentLaunch launch;
  EXPECT_EQ(EvaluateSegments(all.at(0), launch, NoMemory()).barrier, "");
  launch.is_cooperative = true;
  EXPECT_EQ(EvaluateSegments(all.at(0), launch, NoMemory()).barrier, "cooperative");
}

// Each function calls the one before it twice, so the kernel would be walked 2^23 times.
TEST(Segments, ManyCallsOfCallsAreTooLarge) {
  std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n.func f0() {\nret;\n}\n";
  for (int k = 1; k < 24; ++k) text += fmt::format(".func f{0}() {{\ncall f{1};\ncall f{1};\nret;\n}}\n", k, k - 1);
  const auto all = FindSegments(MustParse(text + ".entry k() {\ncall f23;\nret;\n}\n"));
  ASSERT_EQ(all.at(0).barriers.size(), 1u);
  EXPECT_EQ(all.at(0).barriers[0].code, "too-large");
}

TEST(Segments, LaunchesThatAreNoneAreRefused) {
  const std::string text =
      ".version 8.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 p, .param .u32 n) {\nret;\n}\n";
  const auto all = FindSegments(MustParse(text));
  for (const char* launch : {"", "1 1", "1 1 @64", "1 1 @64 1 1", "0 1 @64 1", "1,1,1,1 1 @64 1", "1 -1 @64 1",
                             "1 1 @ 1", "1 1 @64 one", "1 1 @64 1,2", "1 1 @64+ 1", "1 1 @18446744073709551615 1"})
    EXPECT_FALSE(LaunchAsText(all.at(0), launch)) << launch;
  EXPECT_TRUE(LaunchAsText(all.at(0), "1 1,2,3 @64-4 -1"));
}

TEST(Segments, AsJson) {
  const auto all = FindSegments(MustParse(ReadText(TALLY_TEST_PTX_GOLDEN "/segments/classes.ptx")));
  const std::string json = SegmentsAsJson(all);
  for (const char* part : {R"("kernel": "box")", R"("class": "C0")", R"("guards": [)", R"("bytes": 4)", R"("roots": [)",
                           R"("instruction": "red.global.add.u32")", R"("code": "pointer-from-memory")"})
    EXPECT_EQ(json.find(part) != std::string::npos, std::string_view(part).find("pointer") == std::string_view::npos)
        << part;
}

}  // namespace
}  // namespace tally::ptx_transforms
