// Networks of random layers: their operands on the GPU, the pipeline of them, and what they give, computed here in
// double with the roundings that a framework makes between its kernels.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "include/tally/pipelines.h"
#include "tests/pipelines/gpu.h"

namespace tally::pipelines {

struct NetworkLayer {
  int in = 0, out = 0;
  int activation = 0;  // tally_pipeline_activation; 0: none
  int norm = 0;        // tally_pipeline_norm; 0: none
  bool has_bias = true;
  bool has_scale = true;  // of the norm
  int concat = -1;        // tally_pipeline_concat, of what it takes; -1: none
  bool residual = false;
};

class Network {
 public:
  // `layers` with `in` of the hidden columns alone. `padding`: elements between rows of the weights.
  Network(Gpu& gpu, tally_pipeline_dtype dtype, std::vector<NetworkLayer> layers, uint32_t seed, int padding = 0);
  // A chain that the library takes.
  static std::vector<NetworkLayer> RandomLayers(std::mt19937& random);
  // One whose weights do not fit into shared memory; some layers are alike.
  static std::vector<NetworkLayer> RandomLargeLayers(std::mt19937& random);

  // One that has a backward pass, with widths of all kinds; so large that it does not fit into shared memory, or not.
  static std::vector<NetworkLayer> RandomTrainedLayers(std::mt19937& random, bool is_large);

  // Not instantiated; the caller destroys it.
  tally_pipeline* Build() const;
  // New values at the same addresses.
  void ChangeWeights(uint32_t seed);

  int input() const { return layers_.front().in; }
  int output() const { return layers_.back().out; }
  const std::vector<NetworkLayer>& layers() const { return layers_; }
  std::string Describe() const;

  // Values as stored: 16 bits each.
  std::vector<uint16_t> RandomRows(int64_t rows, uint32_t seed) const { return RandomValues(rows * input(), seed); }
  std::vector<uint16_t> RandomValues(int64_t count, uint32_t seed) const;
  // Of one row: what leaves the last layer.
  std::vector<double> Reference(const uint16_t* row) const;
  // What leaves layer `i`, of what leaves the one before and of the chain's input `x`.
  std::vector<double> Leaving(size_t i, std::vector<double> taken, const std::vector<double>& x) const;
  // The gradient of what layer `i` takes, as it leaves the layer before, of that of what leaves `i`. `taken`: what it
  // takes, which says where gradients end. Of chains that have a backward pass.
  std::vector<double> Gradient(size_t i, const std::vector<double>& taken, const std::vector<double>& gradient) const;
  std::vector<double> DecodeRow(const uint16_t* row, int columns) const;
  bool IsBf16() const { return dtype_ == TALLY_PIPELINE_BF16; }
  double Decode(uint16_t bits) const;
  uint16_t Encode(double value) const;

 private:
  struct Operands {
    std::vector<uint16_t> weights, bias, scale, shift;
    void *on_gpu_weights = nullptr, *on_gpu_bias = nullptr, *on_gpu_scale = nullptr, *on_gpu_shift = nullptr;
  };
  int ColumnsOf(const NetworkLayer& layer) const { return layer.in + (layer.concat < 0 ? 0 : input()); }
  int PitchOf(const NetworkLayer& layer) const { return ColumnsOf(layer) + padding_; }
  double Round(double value) const { return Decode(Encode(value)); }
  void Draw(uint32_t seed);

  Gpu& gpu_;
  tally_pipeline_dtype dtype_;
  std::vector<NetworkLayer> layers_;
  int padding_;
  std::vector<Operands> operands_;
};

// Launches it on `rows` rows and compares each element with the reference. What lies between rows of the output and
// behind it must stay. Returns the result.
struct LaunchShape {
  int64_t rows = 0;
  int x_padding = 0, y_padding = 0;  // elements, multiples of 8
  CUstream stream = nullptr;
};
std::vector<uint16_t> LaunchAndCompare(Gpu& gpu, const Network& network, const tally_pipeline* pipeline,
                                       const LaunchShape& shape, uint32_t seed);
// Within one rounding of the type: of what one layer makes of values that are known.
void CompareRowOfOneLayer(const Network& network, const std::vector<double>& expected, const uint16_t* row);
// As near as the roundings between layers allow.
void CompareRow(const Network& network, const std::vector<double>& expected, const uint16_t* row);
// Every element of `rows` rows `y` (pitch `y_pitch`) against the reference of `x`.
void Compare(const Network& network, const std::vector<uint16_t>& x, size_t x_pitch, const std::vector<uint16_t>& y,
             size_t y_pitch, int64_t rows);

}  // namespace tally::pipelines
