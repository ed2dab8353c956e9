#include "sim-driver/engine/texture.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tally::sim_driver {
namespace {

Image MakeImage(uint32_t dimensions, AddressMode mode, bool normalized) {
  Image image;
  image.levels.push_back({.base = 0, .row_bytes = 32, .slice_bytes = 128, .width = 8, .height = 4, .depth = 2});
  image.num_dimensions = dimensions;
  image.format = TexelFormat::kF32;
  image.address_modes = {mode, mode, mode};
  image.is_normalized = normalized;
  return image;
}

// The one tap of a point fetch at x, in a row of eight; -1: the border.
int64_t PointAt(AddressMode mode, bool normalized, float x) {
  const Image image = MakeImage(1, mode, normalized);
  const Footprint footprint = FootprintOf(image, image.levels[0], {x, 0, 0}, false);
  EXPECT_EQ(footprint.num_taps, 1u);
  return footprint.taps[0].is_border ? -1 : footprint.taps[0].x;
}

TEST(Texture, PointFetchesFollowTheAddressingModes) {
  EXPECT_EQ(PointAt(AddressMode::kClamp, false, 3.99f), 3);
  EXPECT_EQ(PointAt(AddressMode::kClamp, false, -5), 0);
  EXPECT_EQ(PointAt(AddressMode::kClamp, false, 100), 7);
  EXPECT_EQ(PointAt(AddressMode::kBorder, false, 7.5f), 7);
  EXPECT_EQ(PointAt(AddressMode::kBorder, false, 8), -1);
  EXPECT_EQ(PointAt(AddressMode::kBorder, false, -0.25f), -1);
  EXPECT_EQ(PointAt(AddressMode::kWrap, true, 1.25f), 2);
  EXPECT_EQ(PointAt(AddressMode::kWrap, true, -0.125f), 7);
  EXPECT_EQ(PointAt(AddressMode::kMirror, true, 1.125f), 7);
  EXPECT_EQ(PointAt(AddressMode::kMirror, true, -0.3125f), 2);
  EXPECT_EQ(PointAt(AddressMode::kMirror, true, 2.3125f), 2);
  // There is no wrapping without normalised coordinates.
  EXPECT_EQ(PointAt(AddressMode::kWrap, false, 9), 7);
}

TEST(Texture, WildCoordinatesStayInside) {
  for (const float x : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN(), 3e38f, -3e38f}) {
    for (const AddressMode mode :
         {AddressMode::kClamp, AddressMode::kBorder, AddressMode::kWrap, AddressMode::kMirror}) {
      for (const bool normalized : {false, true}) {
        const Image image = MakeImage(3, mode, normalized);
        for (const bool linear : {false, true}) {
          const Footprint footprint = FootprintOf(image, image.levels[0], {x, x, x}, linear);
          for (uint32_t k = 0; k < footprint.num_taps; ++k) {
            const Footprint::Tap& tap = footprint.taps[k];
            if (tap.is_border) continue;
            EXPECT_TRUE(tap.x >= 0 && tap.x < 8 && tap.y >= 0 && tap.y < 4 && tap.z >= 0 && tap.z < 2) << x;
          }
        }
      }
    }
  }
}

TEST(Texture, LinearWeightsHaveEightFractionalBits) {
  const Image image = MakeImage(1, AddressMode::kClamp, false);
  const Footprint footprint = FootprintOf(image, image.levels[0], {2.5f + 0.3f, 0, 0}, true);
  ASSERT_EQ(footprint.num_taps, 2u);
  EXPECT_EQ(footprint.taps[0].x, 2);
  EXPECT_EQ(footprint.taps[1].x, 3);
  EXPECT_EQ(footprint.taps[1].weight, 77.0f / 256);  // 0.3 * 256 = 76.8
  EXPECT_EQ(footprint.taps[0].weight, 179.0f / 256);
  const Image cube = MakeImage(3, AddressMode::kClamp, false);
  const Footprint corners = FootprintOf(cube, cube.levels[0], {1, 1, 1}, true);
  ASSERT_EQ(corners.num_taps, 8u);
  for (const Footprint::Tap& tap : corners.taps) EXPECT_EQ(tap.weight, 0.125f);
}

TEST(Texture, ABorderBelowARowTakesHalfOfAFilteredValue) {
  Image image = MakeImage(1, AddressMode::kClamp, false);
  image.levels[0].height = 1;
  image.address_modes[1] = AddressMode::kBorder;
  const Footprint footprint = FootprintOf(image, image.levels[0], {2.75f, 0, 0}, true);
  float of_texels[8] = {}, of_border = 0;
  for (uint32_t k = 0; k < footprint.num_taps; ++k) {
    const Footprint::Tap& tap = footprint.taps[k];
    (tap.is_border ? of_border : of_texels[tap.x]) += tap.weight;
  }
  EXPECT_EQ(of_texels[2], 0.375f);
  EXPECT_EQ(of_texels[3], 0.125f);
  EXPECT_EQ(of_border, 0.5f);
  EXPECT_EQ(FootprintOf(image, image.levels[0], {2.75f, 0, 0}, false).num_taps, 1u);
}

TEST(Texture, GathersGoRoundFromTheLowerLeft) {
  const Image image = MakeImage(2, AddressMode::kClamp, false);
  const Footprint footprint = GatherFootprint(image, image.levels[0], {3, 2, 0});
  const int64_t expected[4][2] = {{2, 2}, {3, 2}, {3, 1}, {2, 1}};
  for (int k = 0; k < 4; ++k) {
    EXPECT_EQ(footprint.taps[k].x, expected[k][0]);
    EXPECT_EQ(footprint.taps[k].y, expected[k][1]);
  }
}

TEST(Texture, ElementsBeyondLinearMemoryAreZero) {
  Image image = MakeImage(1, AddressMode::kClamp, false);
  EXPECT_EQ(FootprintOf(image, image.levels[0], std::array<int32_t, 3>{8, 0, 0}).taps[0].x, 7);
  image.is_linear_memory = true;
  EXPECT_TRUE(FootprintOf(image, image.levels[0], std::array<int32_t, 3>{8, 0, 0}).taps[0].is_border);
  EXPECT_TRUE(FootprintOf(image, image.levels[0], std::array<int32_t, 3>{-1, 0, 0}).taps[0].is_border);
}

TEST(Texture, TexelsBecomeFractionsOrStayIntegers) {
  Image image = MakeImage(1, AddressMode::kClamp, false);
  const auto value = [&](TexelFormat format, uint32_t bits) {
    image.format = format;
    std::byte texel[4];
    std::memcpy(texel, &bits, 4);
    return TexelValue(image, texel, 0);
  };
  const auto fraction = [&](TexelFormat format, uint32_t bits) { return std::bit_cast<float>(value(format, bits)); };
  EXPECT_EQ(fraction(TexelFormat::kU8, 255), 1.0f);
  EXPECT_EQ(fraction(TexelFormat::kU8, 51), 0.2f);
  EXPECT_EQ(fraction(TexelFormat::kS8, 0x81), -1.0f);
  EXPECT_EQ(fraction(TexelFormat::kS8, 0x80), -1.0f);
  EXPECT_EQ(fraction(TexelFormat::kU16, 0xffff), 1.0f);
  EXPECT_EQ(fraction(TexelFormat::kS16, 0x7fff), 1.0f);
  EXPECT_EQ(fraction(TexelFormat::kF16, 0x3800), 0.5f);
  EXPECT_EQ(value(TexelFormat::kU32, 0xdeadbeef), 0xdeadbeefu);
  image.reads_integers = true;
  EXPECT_EQ(value(TexelFormat::kS8, 0x80), 0xffffff80u);
  EXPECT_EQ(value(TexelFormat::kU8, 0x80), 0x80u);
  EXPECT_EQ(value(TexelFormat::kS16, 0x8001), 0xffff8001u);
  EXPECT_EQ(TexelValue(image, nullptr, 1), 0u);  // a channel that is not there
}

TEST(Texture, LevelsAreClampedAndMixed) {
  Image image = MakeImage(2, AddressMode::kClamp, true);
  image.levels.resize(4, image.levels[0]);
  image.max_level = 2;
  EXPECT_EQ(ChooseLevels(image, 0.4f).first, 0u);
  EXPECT_EQ(ChooseLevels(image, 0.6f).first, 1u);
  EXPECT_EQ(ChooseLevels(image, 99).first, 2u);
  EXPECT_EQ(ChooseLevels(image, -99).first, 0u);
  EXPECT_EQ(ChooseLevels(image, std::numeric_limits<float>::quiet_NaN()).first, 0u);
  image.filters_levels_linearly = true;
  const LevelChoice choice = ChooseLevels(image, 1.25f);
  EXPECT_EQ(choice.first, 1u);
  EXPECT_EQ(choice.second, 2u);
  EXPECT_EQ(choice.second_weight, 0.25f);
}

}  // namespace
}  // namespace tally::sim_driver
