#include "server/executor/issue/gated_images.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string_view>

#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kText = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry one(.param .u64 out)
{
	ret;
}
)";

class GatedImagesTest : public testing::Test {
 protected:
  GatedImages Images(uint32_t driver_version = 13000) {
    return {temporary_.path(), driver_version, nullptr, [this](GatedImages::Job job) { job(), ++num_kept_; }};
  }
  static Result<std::shared_ptr<const GatedCode>> Get(GatedImages& images, const std::string& text) {
    return images.Get({std::as_bytes(std::span(text.c_str(), text.size() + 1))}, 90, true);
  }

  const TemporaryDirectory temporary_;
  const std::string text_{kText};
  int num_kept_ = 0;
};

TEST_F(GatedImagesTest, OneContentIsMadeOnceAndShared) {
  GatedImages images = Images();
  const auto first = Get(images, text_), second = Get(images, text_);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(num_kept_, 1);
  EXPECT_EQ((*first)->gates.at("one").hidden_offset, 16u);
  const auto other = Get(images, text_ + "// another");
  ASSERT_TRUE(other);
  EXPECT_NE(*first, *other);
  EXPECT_EQ(*Get(images, text_), *first) << "another one does not push out what is in use";
}

TEST_F(GatedImagesTest, TheNextStartFindsItOnDisk) {
  std::vector<std::byte> image;
  {
    GatedImages images = Images();
    image = (*Get(images, text_))->image;
  }
  GatedImages images = Images();
  const auto again = Get(images, text_);
  ASSERT_TRUE(again);
  EXPECT_EQ((*again)->image, image);
  EXPECT_EQ((*again)->gates.at("one").hidden_offset, 16u);
  EXPECT_EQ(num_kept_, 1) << "not made again";
}

TEST_F(GatedImagesTest, AnotherDriverMayNotTakeWhatThisOneLinked) {
  for (const uint32_t version : {13000u, 13010u, 13000u}) {
    GatedImages images = Images(version);
    ASSERT_TRUE(Get(images, text_));
  }
  EXPECT_EQ(num_kept_, 2);
}

TEST_F(GatedImagesTest, WhatIsDamagedIsMadeAgain) {
  {
    GatedImages images = Images();
    ASSERT_TRUE(Get(images, text_));
  }
  for (const auto& entry : fs::recursive_directory_iterator(temporary_.path())) {
    if (!entry.is_regular_file()) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('!');
  }
  GatedImages images = Images();
  ASSERT_TRUE(Get(images, text_));
  EXPECT_EQ(num_kept_, 2);
}

TEST_F(GatedImagesTest, ErrorsAreThoseOfWhoMakesThem) {
  GatedImages images = Images();
  EXPECT_FALSE(Get(images, "no text at all"));
  EXPECT_FALSE(images.Get({}, 90, true));
  EXPECT_EQ(num_kept_, 0);
}

}  // namespace
}  // namespace tally::server
