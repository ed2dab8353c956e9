// The front desk of the passes: what comes out, under which name, and what is said about it.
#include "ptx-transforms/transform.h"

#include <gmock/gmock.h>

#include "tests/ptx-transforms/syntax/test_modules.h"

namespace tally::ptx_transforms {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Transformed MustTransform(const std::string& text, const TransformOptions& options) {
  Result<Transformed> result = TransformText(text, options);
  if (!result) {
    ADD_FAILURE() << result.error().ToString() << "\n" << text;
    return {};
  }
  const Result<Module> module = ParseModule(result->text, {.keep_unknown = false});
  EXPECT_TRUE(module) << module.error().ToString() << "\n" << result->text;
  return std::move(*result);
}

const std::string kTwoKernels = WithHeader(
    ".visible .entry a(.param .u32 n){\n.reg .b32 %r<3>;\nmov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %nctaid.y;\nret;\n}\n"
    ".entry b(){\n.reg .b64 %rd<2>;\nmov.u64 %rd1, %gridid;\nret;\n}\n");

TEST(TransformText, AddsVariantsBesideTheOriginals) {
  const Transformed result = MustTransform(kTwoKernels, {.pipelines = {{"slice_grid"}}});
  EXPECT_TRUE(result.text.starts_with(kTwoKernels)) << result.text;
  ASSERT_EQ(result.variants.size(), 2u);
  const KernelVariant& done = result.variants[0];
  EXPECT_TRUE(done.is_done());
  EXPECT_EQ(done.kernel, "a");
  EXPECT_EQ(done.name, "a__tally_slice");
  EXPECT_EQ(done.hidden_parameter_offset, 4u);
  EXPECT_EQ(done.hidden_parameter_bytes, 24u);
  EXPECT_THAT(result.text, HasSubstr(".visible .entry a__tally_slice("));
  const KernelVariant& refused = result.variants[1];
  EXPECT_FALSE(refused.is_done());
  EXPECT_EQ(refused.kernel, "b");
  EXPECT_EQ(refused.refused_by, "slice_grid");
  EXPECT_EQ(refused.refusal.code, "grid-id");
  EXPECT_THAT(refused.refusal.sentence, HasSubstr("12:1"));
  EXPECT_THAT(result.text, Not(HasSubstr("b__tally_slice")));
  EXPECT_FALSE(result.is_all_done());
}

TEST(TransformText, ReplacesOriginals) {
  const Transformed result =
      MustTransform(kTwoKernels, {.pipelines = {{"slice_grid"}}, .placement = Placement::kReplace});
  EXPECT_EQ(result.variants[0].name, "a");
  EXPECT_THAT(result.text, HasSubstr(".visible .entry a(.param .u32 n, .param .align 4 .b8 tally_slice[24])"));
  EXPECT_THAT(result.text, Not(HasSubstr("a(.param .u32 n)")));
  EXPECT_THAT(result.text, HasSubstr(".entry b(){")) << "a refused kernel stays";
}

TEST(TransformText, LeavesOriginalsOut) {
  TransformOptions options = {.pipelines = {{"slice_grid"}, {"yield_check"}}, .placement = Placement::kOnly};
  options.kernels = {"a"};
  const Transformed result = MustTransform(kTwoKernels, options);
  ASSERT_EQ(result.variants.size(), 2u);
  EXPECT_EQ(result.variants[1].name, "a__tally_persistent");
  EXPECT_THAT(result.variants[1].passes, ElementsAre("unify_barriers", "persistent_blocks", "yield_check"));
  EXPECT_EQ(result.variants[1].hidden_parameter_offset, 8u);
  EXPECT_EQ(result.variants[1].hidden_parameter_bytes, 32u);
  EXPECT_EQ(result.variants[1].extra_shared_bytes, 16u);
  EXPECT_THAT(result.text, Not(HasSubstr(".entry a(")));
  EXPECT_THAT(result.text, Not(HasSubstr(".entry b(")));
}

// The first variant names the variable itself, the second finds it in a table of addresses.
TEST(TransformText, KeepsVariablesThatAnyVariantNames) {
  const std::string text = WithHeader(
      ".global .u32 g;\n.visible .entry a(){\n.reg .b32 %r<2>;\nld.global.u32 %r1, [g];\nret;\n}\n");
  const TransformOptions options = {.pipelines = {{"slice_grid"}, {"import_globals", "yield_check"}},
                                    .placement = Placement::kOnly};
  const Transformed result = MustTransform(text, options);
  ASSERT_TRUE(result.is_all_done());
  EXPECT_THAT(result.text, HasSubstr(".global .u32 g;"));
}

// PTX lets registers be called anything, with or without %.
TEST(TransformText, KeepsRegistersOfAnyName) {
  const std::string text = WithHeader(
      ".visible .entry a(.param .u32 n){\n.reg .b32 votes; .reg .pred is_odd;\nmov.u32 votes, %tid.x;\n"
      "setp.ne.u32 is_odd, votes, 7;\n@!is_odd ret;\nbar.red.popc.u32 votes, 0, !is_odd;\n"
      "bar.red.and.pred is_odd, 0, is_odd;\nret;\n}\n");
  const Transformed result = MustTransform(text, {.pipelines = {{"unify_barriers"}}, .placement = Placement::kReplace});
  ASSERT_TRUE(result.is_all_done()) << result.variants[0].refusal.sentence;
  EXPECT_THAT(result.text, HasSubstr("mov.u32 votes, "));
  EXPECT_THAT(result.text, HasSubstr("not.pred %tally_counts, is_odd;"));
}

TEST(TransformText, SaysWhatIsWrongWithTheRequest) {
  const auto code = [](const TransformOptions& options) { return TransformText(kTwoKernels, options).error().code(); };
  EXPECT_EQ(code({.pipelines = {{"slice_grit"}}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.pipelines = {{"slice_grid"}, {"yield_check"}}, .placement = Placement::kReplace}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.pipelines = {{"slice_grid"}}, .kernels = {"c"}}), StatusCode::kNotFound);
  EXPECT_EQ(code({.pipelines = {{"slice_grid"}}, .disabled_passes = {"slice_grid"}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.pipelines = {{"yield_check"}}, .disabled_passes = {"unify_barriers"}}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(TransformText("no ptx", {.pipelines = {{"slice_grid"}}}).error().code(), StatusCode::kInvalidArgument);
}

// persistent_blocks with and without yield_check make a kernel of the same name.
TEST(TransformText, GivesNoNameTwice) {
  const Transformed result = MustTransform(
      kTwoKernels, {.pipelines = {{"persistent_blocks"}, {"persistent_blocks", "yield_check"}}, .kernels = {"a"}});
  ASSERT_EQ(result.variants.size(), 2u);
  EXPECT_EQ(result.variants[0].name, "a__tally_persistent");
  EXPECT_EQ(result.variants[1].refusal.code, "name-taken");
}

TEST(TransformText, MakesUpNamesThatAreNotTaken) {
  const std::string text = WithHeader(
      ".visible .entry tally_a(.param .u32 tally_slice){\n.reg .b32 %tally_ctaid_x;\nmov.u32 %tally_ctaid_x, "
      "%ctaid.x;\nret;\n}\n");
  const Transformed result = MustTransform(text, {.pipelines = {{"slice_grid"}}});
  EXPECT_THAT(result.text, HasSubstr("tally1_slice[24]"));
  EXPECT_THAT(result.text, HasSubstr("%tally1_ctaid_x"));
}

}  // namespace
}  // namespace tally::ptx_transforms
