// Textures and surfaces: how texels lie in memory and what a fetch returns, as the CUDA programming guide's appendix
// "Texture Fetching" specifies it. Knows nothing of warps: the caller reads the memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tally::sim_driver {

enum class TexelFormat : uint8_t { kU8, kS8, kU16, kS16, kU32, kS32, kF16, kF32 };
uint32_t FormatBytes(TexelFormat format);

// Same numbers as CUaddress_mode.
enum class AddressMode : uint8_t { kWrap = 0, kClamp = 1, kMirror = 2, kBorder = 3 };

// What a texture or surface object stands for. Immutable once it has a handle.
struct Image {
  struct Level {
    uint64_t base = 0;  // device address
    uint64_t row_bytes = 0;
    uint64_t slice_bytes = 0;  // of a depth slice or layer
    uint32_t width = 0;
    uint32_t height = 1;
    uint32_t depth = 1;
  };
  std::vector<Level> levels;      // at least one; more for mipmaps
  uint32_t num_dimensions = 1;    // 1 to 3, layers not counted
  uint32_t num_layers = 0;        // 0: not layered
  bool is_linear_memory = false;  // tex1Dfetch: an index beyond the end reads zero
  TexelFormat format = TexelFormat::kU8;
  uint32_t num_channels = 1;

  // Of textures only.
  std::array<AddressMode, 3> address_modes{};
  bool filters_linearly = false;
  bool filters_levels_linearly = false;
  bool is_normalized = false;   // coordinates are 0 to 1
  bool reads_integers = false;  // 8- and 16-bit integers stay integers instead of becoming 0 to 1
  float level_bias = 0, min_level = 0, max_level = 0;
  std::array<float, 4> border{};

  uint32_t texel_bytes() const { return FormatBytes(format) * num_channels; }
};

// The texel's bits of one channel as a fetch returns them: a float, or an integer extended to 32 bits.
uint32_t TexelValue(const Image& image, const std::byte* texel, uint32_t channel);

// Where a fetch reads: up to eight texels and their weights. Weights have 8 fractional bits, as the hardware's.
struct Footprint {
  struct Tap {
    int64_t x = 0, y = 0, z = 0;  // inside the level, unless is_border
    bool is_border = false;
    float weight = 1;
  };
  std::array<Tap, 8> taps;
  uint32_t num_taps = 0;
};

// The taps of a fetch at floating-point coordinates in one level. `linear`: filtered.
Footprint FootprintOf(const Image& image, const Image::Level& level, const std::array<float, 3>& coordinates,
                      bool linear);
// At integer coordinates: the texel itself, or border.
Footprint FootprintOf(const Image& image, const Image::Level& level, const std::array<int32_t, 3>& coordinates);
// The four texels that bilinear filtering would use, in the order in which tld4 returns them.
Footprint GatherFootprint(const Image& image, const Image::Level& level, const std::array<float, 3>& coordinates);

// The level(s) of a fetch at `lod`: first and second level and the weight of the second, with 8 fractional bits.
struct LevelChoice {
  uint32_t first = 0, second = 0;
  float second_weight = 0;
};
LevelChoice ChooseLevels(const Image& image, float lod);

}  // namespace tally::sim_driver
