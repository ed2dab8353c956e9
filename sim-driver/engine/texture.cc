#include "sim-driver/engine/texture.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "sim-driver/engine/half.h"

namespace tally::sim_driver {
namespace {

template <typename T>
T Read(const std::byte* from) {
  T value{};
  std::memcpy(&value, from, sizeof(T));
  return value;
}

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

// [0, 1] or [-1, 1].
float Unit(int64_t value, int64_t largest) {
  return std::max(-1.0f, static_cast<float>(static_cast<double>(value) / static_cast<double>(largest)));
}

float Fraction(float x) { return x - std::floor(x); }

// Indices beyond this are out of every texture, and fit an int64_t.
constexpr double kFarAway = 1e15;

int64_t FloorToIndex(double x) {
  if (std::isnan(x)) return 0;
  return static_cast<int64_t>(std::floor(std::clamp(x, -kFarAway, kFarAway)));
}

int64_t Modulo(int64_t index, int64_t size) {
  const int64_t rest = index % size;
  return rest < 0 ? rest + size : rest;
}

// Where index leads in a dimension of `size` texels; false: to the border.
bool Resolve(AddressMode mode, int64_t size, int64_t& index) {
  switch (mode) {
    case AddressMode::kWrap:
      index = Modulo(index, size);
      return true;
    case AddressMode::kMirror: {
      const int64_t twice = Modulo(index, 2 * size);
      index = twice < size ? twice : 2 * size - 1 - twice;
      return true;
    }
    case AddressMode::kClamp:
      index = std::clamp<int64_t>(index, 0, size - 1);
      return true;
    case AddressMode::kBorder:
      return index >= 0 && index < size;
  }
  return false;
}

// Wrapping and mirroring exist for normalised coordinates only.
AddressMode ModeOf(const Image& image, uint32_t dimension) {
  const AddressMode mode = image.address_modes[dimension];
  const bool repeats = mode == AddressMode::kWrap || mode == AddressMode::kMirror;
  return repeats && !image.is_normalized ? AddressMode::kClamp : mode;
}

uint32_t Extent(const Image::Level& level, uint32_t dimension) {
  return dimension == 0 ? level.width : dimension == 1 ? level.height : level.depth;
}

// The coordinate in texels. The part before the point is taken off before the multiplication, as the guide says:
// that keeps far-away coordinates exact.
double InTexels(const Image& image, const Image::Level& level, uint32_t dimension, float x) {
  if (!image.is_normalized) return x;
  const double size = Extent(level, dimension);
  switch (image.address_modes[dimension]) {
    case AddressMode::kWrap:
      return double{Fraction(x)} * size;
    case AddressMode::kMirror: {
      const bool is_even = std::fmod(std::floor(x), 2.0f) == 0;
      return (is_even ? double{Fraction(x)} : 1.0 - double{Fraction(x)}) * size;
    }
    default:
      return double{x} * size;
  }
}

struct Axis {
  int64_t index[2] = {0, 0};
  bool is_border[2] = {false, false};
  double weight[2] = {1, 0};
};

Axis PointAxis(const Image& image, const Image::Level& level, uint32_t dimension, double texels) {
  Axis axis;
  axis.index[0] = FloorToIndex(texels);
  axis.is_border[0] = !Resolve(ModeOf(image, dimension), Extent(level, dimension), axis.index[0]);
  return axis;
}

Axis LinearAxis(const Image& image, const Image::Level& level, uint32_t dimension, double texels) {
  const double shifted = texels - 0.5;
  Axis axis;
  axis.index[0] = FloorToIndex(shifted);
  // 9 bits of fixed point, 8 of them fractional.
  double alpha = std::isfinite(shifted) ? std::nearbyint((shifted - std::floor(shifted)) * 256) / 256 : 0;
  axis.index[1] = axis.index[0] + 1;
  axis.weight[0] = 1 - alpha;
  axis.weight[1] = alpha;
  for (int k = 0; k < 2; ++k) {
    axis.is_border[k] = !Resolve(ModeOf(image, dimension), Extent(level, dimension), axis.index[k]);
  }
  return axis;
}

void Combine(const std::array<Axis, 3>& axes, uint32_t num_dimensions, bool linear, Footprint* footprint) {
  const uint32_t count = linear ? 1u << num_dimensions : 1;
  for (uint32_t k = 0; k < count; ++k) {
    Footprint::Tap tap;
    double weight = 1;
    int64_t index[3] = {0, 0, 0};
    for (uint32_t d = 0; d < num_dimensions; ++d) {
      const uint32_t side = k >> d & 1;
      index[d] = axes[d].index[side];
      tap.is_border = tap.is_border || axes[d].is_border[side];
      weight *= axes[d].weight[side];
    }
    tap.x = index[0];
    tap.y = index[1];
    tap.z = index[2];
    tap.weight = static_cast<float>(weight);
    footprint->taps[footprint->num_taps++] = tap;
  }
}

}  // namespace

uint32_t FormatBytes(TexelFormat format) {
  switch (format) {
    case TexelFormat::kU8:
    case TexelFormat::kS8:
      return 1;
    case TexelFormat::kU16:
    case TexelFormat::kS16:
    case TexelFormat::kF16:
      return 2;
    default:
      return 4;
  }
}

uint32_t TexelValue(const Image& image, const std::byte* texel, uint32_t channel) {
  if (channel >= image.num_channels) return 0;
  const std::byte* const from = texel + channel * FormatBytes(image.format);
  const bool is_integer = image.reads_integers;
  switch (image.format) {
    case TexelFormat::kU8: {
      const auto value = Read<uint8_t>(from);
      return is_integer ? value : Bits(Unit(value, 0xff));
    }
    case TexelFormat::kS8: {
      const auto value = Read<int8_t>(from);
      return is_integer ? static_cast<uint32_t>(int32_t{value}) : Bits(Unit(value, 0x7f));
    }
    case TexelFormat::kU16: {
      const auto value = Read<uint16_t>(from);
      return is_integer ? value : Bits(Unit(value, 0xffff));
    }
    case TexelFormat::kS16: {
      const auto value = Read<int16_t>(from);
      return is_integer ? static_cast<uint32_t>(int32_t{value}) : Bits(Unit(value, 0x7fff));
    }
    case TexelFormat::kF16:
      return Bits(F16::ToFloat(Read<uint16_t>(from)));
    default:
      return Read<uint32_t>(from);
  }
}

Footprint FootprintOf(const Image& image, const Image::Level& level, const std::array<float, 3>& coordinates,
                      bool linear) {
  // The hardware filters a row as an image of one row, at y = 0, half way to the row below: which is border if the mode
  // of the dimension that a row has not says so (seen on an H200).
  const bool has_border_below = linear && image.num_dimensions == 1 && image.address_modes[1] == AddressMode::kBorder;
  const uint32_t num_dimensions = has_border_below ? 2 : image.num_dimensions;
  std::array<Axis, 3> axes;
  for (uint32_t d = 0; d < num_dimensions; ++d) {
    const double texels = InTexels(image, level, d, d < image.num_dimensions ? coordinates[d] : 0);
    axes[d] = linear ? LinearAxis(image, level, d, texels) : PointAxis(image, level, d, texels);
  }
  Footprint footprint;
  Combine(axes, num_dimensions, linear, &footprint);
  return footprint;
}

Footprint FootprintOf(const Image& image, const Image::Level& level, const std::array<int32_t, 3>& coordinates) {
  Footprint footprint;
  Footprint::Tap tap;
  int64_t index[3] = {0, 0, 0};
  for (uint32_t d = 0; d < image.num_dimensions; ++d) {
    index[d] = coordinates[d];
    const AddressMode mode = image.is_linear_memory                     ? AddressMode::kBorder
                             : ModeOf(image, d) == AddressMode::kBorder ? AddressMode::kBorder
                                                                        : AddressMode::kClamp;
    if (!Resolve(mode, Extent(level, d), index[d])) tap.is_border = true;
  }
  tap.x = index[0];
  tap.y = index[1];
  tap.z = index[2];
  footprint.taps[footprint.num_taps++] = tap;
  return footprint;
}

Footprint GatherFootprint(const Image& image, const Image::Level& level, const std::array<float, 3>& coordinates) {
  const Footprint corners = FootprintOf(image, level, coordinates, /*linear=*/true);
  Footprint footprint;
  footprint.num_taps = 4;
  // Corners are numbered x + 2 y; the instruction goes round them, from the lower left.
  constexpr uint32_t kOrder[4] = {2, 3, 1, 0};
  for (uint32_t k = 0; k < 4; ++k) footprint.taps[k] = corners.taps[kOrder[k]];
  return footprint;
}

LevelChoice ChooseLevels(const Image& image, float lod) {
  const auto last = static_cast<float>(image.levels.size() - 1);
  float level = lod + image.level_bias;
  level = std::isnan(level) ? 0 : std::clamp(level, image.min_level, std::max(image.min_level, image.max_level));
  level = std::clamp(level, 0.0f, last);
  LevelChoice choice;
  if (!image.filters_levels_linearly) {
    choice.first = choice.second = static_cast<uint32_t>(std::min(std::floor(level + 0.5f), last));
    return choice;
  }
  choice.first = static_cast<uint32_t>(std::floor(level));
  choice.second = std::min(choice.first + 1, static_cast<uint32_t>(image.levels.size() - 1));
  choice.second_weight = std::nearbyint(Fraction(level) * 256) / 256;
  return choice;
}

}  // namespace tally::sim_driver
