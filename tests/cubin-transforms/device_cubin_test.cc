#include <gtest/gtest.h>

#include "cubin-transforms/add_gates.h"
#include "tests/cubin-transforms/test_cubins.h"

namespace tally::cubin_transforms {
namespace {

TEST(CubinForDevice, TakesTheOneOfTheDevice) {
  const std::vector<std::byte> container = ReadCubin("two.fatbin");
  for (const int capability : {80, 90}) {
    const auto cubin = CubinForDevice(container, capability);
    ASSERT_TRUE(cubin) << cubin.error().ToString();
    // A stored entry may be padded.
    const auto expected = ReadCubin(capability);
    ASSERT_GE(cubin->size(), expected.size());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), cubin->begin()));
  }
  EXPECT_TRUE(CubinForDevice(container, 86));
  for (const int capability : {75, 100, 120})
    EXPECT_EQ(CubinForDevice(container, capability).error().code(), StatusCode::kNotFound) << capability;
}

TEST(CubinForDevice, TakesACubinAsItIs) { EXPECT_EQ(CubinForDevice(ReadCubin(90), 90).value(), ReadCubin(90)); }

TEST(CubinForDevice, FindsNothingInText) {
  const char ptx[] = ".version 8.0\n.target sm_80\n";
  EXPECT_EQ(CubinForDevice(std::as_bytes(std::span(ptx)), 90).error().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace tally::cubin_transforms
