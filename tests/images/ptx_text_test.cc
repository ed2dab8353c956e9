#include "images/ptx_text.h"

#include <gtest/gtest.h>

#include "tests/images/test_images.h"

namespace tally::images {
namespace {

TEST(ReadPtxHead, ReadsWhatCompilersWrite) {
  const auto head = ReadPtxHead(ReadTextImage("compute_80.ptx"));
  ASSERT_TRUE(head) << head.error().ToString();
  EXPECT_EQ(head->target, 80u);
  EXPECT_EQ(head->suffix, 0);
  EXPECT_GE(head->version_major, 8);
  const auto other = ReadPtxHead("// a\n/* b\n */ .version 8.6\n.target sm_90a, debug // c\n.address_size 64\n");
  ASSERT_TRUE(other);
  EXPECT_EQ(other->target, 90u);
  EXPECT_EQ(other->suffix, 'a');
  EXPECT_EQ(other->version_major, 8);
  EXPECT_EQ(other->version_minor, 6);
}

TEST(ReadPtxHead, RefusesEverythingElse) {
  const std::string whole = ".version 8.6\n.target sm_90\n.address_size 64";
  EXPECT_TRUE(ReadPtxHead(whole));
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(ReadPtxHead(whole.substr(0, size))) << size;
  EXPECT_FALSE(ReadPtxHead(".version 8.6\n.target sm_90\n.address_size 32\n"));
  EXPECT_FALSE(ReadPtxHead(".version 8.6\n.target texmode_unified\n.address_size 64\n"));
  EXPECT_FALSE(ReadPtxHead(".version 99999999999.6\n.target sm_90\n.address_size 64\n"));
  EXPECT_FALSE(ReadPtxHead("/* " + whole));
}

TEST(DefinesKernel, WantsTheWholeName) {
  const std::string_view ptx = ".visible .entry Scale(\n.param .u64 a) {}\n.entry\tAdd2 () {} .func Sub() {}";
  EXPECT_TRUE(DefinesKernel(ptx, "Scale"));
  EXPECT_TRUE(DefinesKernel(ptx, "Add2"));
  EXPECT_FALSE(DefinesKernel(ptx, "Add"));
  EXPECT_FALSE(DefinesKernel(ptx, "Sub"));
  EXPECT_FALSE(DefinesKernel(ptx, "cale"));
  EXPECT_FALSE(DefinesKernel(".entry Scale", "Scale"));
}

TEST(HasContractibleMultiply, LooksAtRounding) {
  EXPECT_TRUE(HasContractibleMultiply("  mul.f32 %f1, %f2, %f3;"));
  EXPECT_TRUE(HasContractibleMultiply("mul.ftz.f32\t%f1, %f2, %f3;"));
  EXPECT_TRUE(HasContractibleMultiply("mul.rn.f32 %f1, %f2, %f3; mul.f64 %d1, %d1, %d1;"));
  EXPECT_FALSE(HasContractibleMultiply("mul.rn.f32 %f1, %f2, %f3; mul.lo.s32 %r1, %r2, %r3;"));
  EXPECT_FALSE(HasContractibleMultiply("mul.wide.u32 %rd1, %r2, 4;\nadd.f32 %f1, %f1, %f1; mul."));
  EXPECT_FALSE(HasContractibleMultiply(""));
}

}  // namespace
}  // namespace tally::images
