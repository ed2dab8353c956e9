#include "server/executor/issue/gated_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cubin-transforms/add_gates.h"
#include "tests/server/executor/issue/assembled.h"

namespace tally::server {
namespace {

constexpr const char* kPtx = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry one(.param .u64 out)
{
	ret;
}
)";

class GatedCodeTest : public testing::Test {
 protected:
  const std::vector<std::byte> linked_ = Assembled(kPtx);
  const std::vector<std::byte> relocatable_ = Assembled(kPtx, "-c");
  int num_linked_ = 0;
  const CubinLinker link_ = [this](std::span<const std::byte> relocatable) -> Result<std::vector<std::byte>> {
    ++num_linked_;
    EXPECT_TRUE(std::equal(relocatable.begin(), relocatable.end(), relocatable_.begin(), relocatable_.end()));
    return linked_;
  };
};

TEST_F(GatedCodeTest, WhatIsRelocatableIsLinkedFirst) {
  ASSERT_TRUE(cubin_transforms::IsRelocatable(relocatable_));
  const auto code = GateMachineCode(relocatable_, 90, link_);
  ASSERT_TRUE(code) << code.error().ToString();
  EXPECT_EQ(num_linked_, 1);
  EXPECT_EQ(code->gates.at("one").hidden_offset, 16u);
  EXPECT_EQ(code->image, GateMachineCode(linked_, 90, link_)->image);
  EXPECT_EQ(num_linked_, 1) << "what can be run is not linked";
}

TEST_F(GatedCodeTest, WithoutALinkerItIsLeftAlone) {
  EXPECT_EQ(GateMachineCode(relocatable_, 90, nullptr).error().code(), StatusCode::kNotFound);
}

TEST_F(GatedCodeTest, WhatCannotBeLinkedIsLeftAlone) {
  const auto code = GateMachineCode(
      relocatable_, 90, [](auto) { return Error(StatusCode::kUnavailable, "undefined reference to 'elsewhere'"); });
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().message(), "undefined reference to 'elsewhere'");
}

TEST(KeptGatedCodeTest, SurvivesTheDisk) {
  GatedCode code;
  code.image = {std::byte{1}, std::byte{0}, std::byte{255}};
  code.gates["a"] = {32, true, false};
  code.refusals["b"] = "has entry fragments";
  const auto bytes = Serialize(code);
  const auto again = DeserializeGatedCode(bytes);
  ASSERT_TRUE(again) << again.error().ToString();
  EXPECT_EQ(again->image, code.image);
  EXPECT_EQ(again->gates.at("a").hidden_offset, 32u);
  EXPECT_TRUE(again->gates.at("a").gates_clusters);
  EXPECT_FALSE(again->gates.at("a").waits_for_blocks);
  EXPECT_EQ(again->refusals, code.refusals);
  for (size_t size = 0; size + code.image.size() < bytes.size(); ++size) {
    EXPECT_FALSE(DeserializeGatedCode(std::span(bytes).first(size))) << size;
  }
}

}  // namespace
}  // namespace tally::server
