#include "server/variants/gated_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cubin-transforms/add_gates.h"
#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

class GatedCodeTest : public testing::Test {
 protected:
  static std::vector<std::byte> Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string code((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto* bytes = reinterpret_cast<const std::byte*>(code.data());
    return {bytes, bytes + code.size()};
  }
  // A kernel, assembled by the toolkit; relocatable with `-c`.
  std::vector<std::byte> Assemble(const std::string& option) const {
    const std::string ptx = temporary_.path() + "/one.ptx", cubin = temporary_.path() + "/one.cubin";
    std::ofstream(ptx) << ".version 8.0\n.target sm_90\n.address_size 64\n"
                          ".visible .entry one(.param .u64 out) {\n ret;\n}\n";
    const std::string command = std::string(TALLY_TEST_PTXAS) + " -arch=sm_90 " + option + " " + ptx + " -o " + cubin;
    EXPECT_EQ(std::system(command.c_str()), 0);
    return Read(cubin);
  }

  const TemporaryDirectory temporary_;
  const std::vector<std::byte> linked_ = Assemble("");
  const std::vector<std::byte> relocatable_ = Assemble("-c");
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
