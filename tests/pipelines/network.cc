#include "tests/pipelines/network.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tally::pipelines {
namespace {

constexpr float kEpsilon = 1e-3f;
constexpr uint16_t kUntouched = 0xabcd;

double Activate(int activation, double x) {
  switch (activation) {
    case TALLY_PIPELINE_RELU:
      return x < 0 ? 0 : x;
    case TALLY_PIPELINE_GELU:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case TALLY_PIPELINE_GELU_TANH:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case TALLY_PIPELINE_SILU:
      return x / (1 + std::exp(-x));
    default:
      return x;
  }
}

}  // namespace

double Network::Decode(uint16_t bits) const {
  if (dtype_ == TALLY_PIPELINE_BF16) return std::bit_cast<float>(uint32_t{bits} << 16);
  const double sign = bits & 0x8000 ? -1 : 1;
  const int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  return sign * std::ldexp(exponent == 0 ? fraction : 1024 + fraction, std::max(exponent, 1) - 25);
}

uint16_t Network::Encode(double value) const {
  const bool is_bf16 = dtype_ == TALLY_PIPELINE_BF16;
  if (std::isnan(value)) return 0x7fff;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const int bits = is_bf16 ? 7 : 10, bias = is_bf16 ? 127 : 15;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int lowest = std::max(exponent - 1, 1 - bias) - bits;  // weight of the last bit
  const auto whole = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -lowest)));
  const uint32_t biased = static_cast<uint32_t>(lowest + bits + bias);
  // A carry goes from the fraction into the exponent.
  const uint32_t encoded = whole < 1u << bits ? whole : ((biased - 1) << bits) + whole;
  const uint32_t infinity = is_bf16 ? 0x7f80 : 0x7c00;
  return static_cast<uint16_t>(sign | std::min(encoded, infinity));
}

Network::Network(Gpu& gpu, tally_pipeline_dtype dtype, std::vector<NetworkLayer> layers, uint32_t seed, int padding)
    : gpu_(gpu), dtype_(dtype), layers_(std::move(layers)), padding_(padding), operands_(layers_.size()) {
  Draw(seed);
  for (size_t i = 0; i < layers_.size(); ++i) {
    Operands& of = operands_[i];
    of.on_gpu_weights = gpu_.Upload(of.weights);
    if (layers_[i].has_bias) of.on_gpu_bias = gpu_.Upload(of.bias);
    if (layers_[i].norm == 0 || !layers_[i].has_scale) continue;
    of.on_gpu_scale = gpu_.Upload(of.scale);
    of.on_gpu_shift = gpu_.Upload(of.shift);
  }
}

void Network::Draw(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const NetworkLayer& layer = layers_[i];
    Operands& of = operands_[i];
    const int columns = ColumnsOf(layer), pitch = PitchOf(layer);
    of.weights.assign(static_cast<size_t>(pitch) * layer.out, Encode(1000));
    for (int r = 0; r < layer.out; ++r)
      for (int c = 0; c < columns; ++c)
        of.weights[static_cast<size_t>(r) * pitch + c] = Encode(normal(random) / std::sqrt(columns));
    for (auto* vector : {&of.bias, &of.scale, &of.shift}) {
      vector->clear();
      for (int r = 0; r < layer.out; ++r)
        vector->push_back(Encode(vector == &of.scale ? 1 + 0.3 * normal(random) : 0.3 * normal(random)));
    }
  }
}

void Network::ChangeWeights(uint32_t seed) {
  Draw(seed);
  const auto write = [&](void* to, const std::vector<uint16_t>& values) {
    if (to != nullptr) gpu_.Write(to, values.data(), 2 * values.size());
  };
  for (Operands& of : operands_) {
    write(of.on_gpu_weights, of.weights);
    write(of.on_gpu_bias, of.bias);
    write(of.on_gpu_scale, of.scale);
    write(of.on_gpu_shift, of.shift);
  }
}

std::vector<NetworkLayer> Network::RandomLayers(std::mt19937& random) {
  const auto below = [&](uint32_t n) { return static_cast<int>(random() % n); };
  std::vector<NetworkLayer> layers(static_cast<size_t>(1 + below(3)));
  const int input = 8 * (1 + below(17));
  int hidden = input;
  for (size_t i = 0; i < layers.size(); ++i) {
    NetworkLayer& layer = layers[i];
    layer.in = hidden;
    layer.out = 16 * (1 + below(8));
    if (input % 16 == 0 && below(3) == 0) layer.out = input;
    layer.activation = below(5);
    layer.norm = below(3);
    layer.has_bias = below(4) != 0;
    layer.has_scale = below(2) != 0;
    layer.residual = layer.out == input && below(2) == 0;
    if (i > 0 && below(3) == 0) layer.concat = below(2);
    hidden = layer.out;
  }
  return layers;
}

std::vector<NetworkLayer> Network::RandomLargeLayers(std::mt19937& random) {
  const auto below = [&](uint32_t n) { return static_cast<int>(random() % n); };
  constexpr int kSharedElements = 232'448 / 2;
  std::vector<NetworkLayer> layers;
  const int input = 8 * (1 + below(20));
  int hidden = input;
  for (int elements = 0; elements < kSharedElements || below(3) != 0;) {
    NetworkLayer layer{.in = hidden, .out = 16 * (1 + below(16)), .activation = below(5), .has_bias = below(4) != 0};
    if (below(2) == 0) layer.out = 128 * (1 + below(2));
    if (input % 16 == 0 && below(4) == 0) layer.out = input;
    if (below(4) == 0) layer.norm = 1 + below(2);
    layer.residual = layer.out == input && below(2) == 0;
    if (!layers.empty() && below(4) == 0) layer.concat = below(2);
    for (int alike = layer.concat < 0 && below(2) == 0 && layers.size() < 6 ? 2 + below(3) : 1; alike > 0; --alike) {
      elements += (layer.in + (layer.concat < 0 ? 0 : input)) * layer.out;
      layers.push_back(layer);
      layer.in = layer.out;
    }
    hidden = layer.out;
  }
  return layers;
}

std::vector<NetworkLayer> Network::RandomTrainedLayers(std::mt19937& random, bool is_large) {
  const auto below = [&](uint32_t n) { return static_cast<int>(random() % n); };
  constexpr int kSharedElements = 232'448 / 2;
  std::vector<NetworkLayer> layers;
  int hidden = 16 * (1 + below(is_large ? 16 : 9)), elements = 0;
  while (is_large ? elements < kSharedElements : layers.size() < 2 || (layers.size() < 4 && below(2) != 0)) {
    const int out = is_large && below(2) == 0 ? 128 * (1 + below(2)) : 16 * (1 + below(is_large ? 16 : 9));
    NetworkLayer layer{.in = hidden, .out = out, .has_bias = below(3) != 0};
    if (below(4) != 0) layer.activation = TALLY_PIPELINE_RELU;
    for (int alike = is_large && below(2) == 0 ? 3 : 1; alike > 0; --alike) {
      layers.push_back(layer);
      elements += layer.in * layer.out;
      layer.in = hidden = layer.out;
    }
  }
  layers.back().activation = 0;
  return layers;
}

std::string Network::Describe() const {
  std::string text = dtype_ == TALLY_PIPELINE_BF16 ? "bf16" : "fp16";
  for (const NetworkLayer& layer : layers_) {
    text += " [" + std::to_string(layer.in) +
            (layer.concat < 0    ? ""
             : layer.concat == 0 ? "+first"
                                 : "+last") +
            "-" + std::to_string(layer.out) + " activation " + std::to_string(layer.activation) + " norm " +
            std::to_string(layer.norm) + (layer.residual ? " residual" : "") + "]";
  }
  return text;
}

tally_pipeline* Network::Build() const {
  tally_pipeline* pipeline = tallyPipelineCreate(dtype_);
  const auto ok = [&](int result) { EXPECT_EQ(result, 0) << tallyPipelineError(pipeline); };
  for (size_t i = 0; i < layers_.size(); ++i) {
    const NetworkLayer& layer = layers_[i];
    const Operands& of = operands_[i];
    if (layer.concat >= 0) ok(tallyPipelineAddConcat(pipeline, static_cast<tally_pipeline_concat>(layer.concat)));
    ok(tallyPipelineAddLinear(pipeline, of.on_gpu_weights, static_cast<size_t>(PitchOf(layer)), of.on_gpu_bias,
                              ColumnsOf(layer), layer.out));
    if (layer.activation != 0)
      ok(tallyPipelineAddActivation(pipeline, static_cast<tally_pipeline_activation>(layer.activation)));
    if (layer.norm != 0) {
      ok(tallyPipelineAddNorm(pipeline, static_cast<tally_pipeline_norm>(layer.norm), of.on_gpu_scale, of.on_gpu_shift,
                              kEpsilon));
    }
    if (layer.residual) ok(tallyPipelineAddResidual(pipeline));
  }
  return pipeline;
}

std::vector<uint16_t> Network::RandomValues(int64_t count, uint32_t seed) const {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<uint16_t> x(static_cast<size_t>(count));
  for (uint16_t& value : x) value = Encode(normal(random));
  return x;
}

std::vector<double> Network::DecodeRow(const uint16_t* row, int columns) const {
  std::vector<double> values(static_cast<size_t>(columns));
  for (size_t c = 0; c < values.size(); ++c) values[c] = Decode(row[c]);
  return values;
}

std::vector<double> Network::Reference(const uint16_t* row) const {
  const std::vector<double> x = DecodeRow(row, input());
  std::vector<double> hidden = x;
  for (size_t i = 0; i < layers_.size(); ++i) hidden = Leaving(i, hidden, x);
  return hidden;
}

std::vector<double> Network::Leaving(size_t i, std::vector<double> taken, const std::vector<double>& x) const {
  const NetworkLayer& layer = layers_[i];
  const Operands& of = operands_[i];
  if (layer.concat == TALLY_PIPELINE_INPUT_FIRST) taken.insert(taken.begin(), x.begin(), x.end());
  if (layer.concat == TALLY_PIPELINE_INPUT_LAST) taken.insert(taken.end(), x.begin(), x.end());
  std::vector<double> hidden(static_cast<size_t>(layer.out));
  for (size_t r = 0; r < hidden.size(); ++r) {
    double sum = layer.has_bias ? Decode(of.bias[r]) : 0;
    const uint16_t* weights = of.weights.data() + r * static_cast<size_t>(PitchOf(layer));
    for (size_t c = 0; c < taken.size(); ++c) sum += Decode(weights[c]) * taken[c];
    hidden[r] = sum;
  }
  if (layer.activation != 0)
    for (double& value : hidden) value = Activate(layer.activation, Round(value));
  if (layer.norm != 0) {
    double mean = 0, squares = 0;
    for (double& value : hidden) value = Round(value);
    if (layer.norm == TALLY_PIPELINE_LAYER_NORM)
      for (const double value : hidden) mean += value / layer.out;
    for (const double value : hidden) squares += (value - mean) * (value - mean) / layer.out;
    const bool has_scale = of.on_gpu_scale != nullptr;
    for (size_t r = 0; r < hidden.size(); ++r) {
      hidden[r] = (hidden[r] - mean) / std::sqrt(squares + kEpsilon) * (has_scale ? Decode(of.scale[r]) : 1) +
                  (has_scale ? Decode(of.shift[r]) : 0);
    }
  }
  if (layer.residual)
    for (size_t r = 0; r < hidden.size(); ++r) hidden[r] = Round(hidden[r]) + x[r];
  for (double& value : hidden) value = Round(value);
  return hidden;
}

std::vector<double> Network::Gradient(size_t i, const std::vector<double>& taken,
                                      const std::vector<double>& gradient) const {
  std::vector<double> sums(static_cast<size_t>(layers_[i].in));
  for (size_t r = 0; r < gradient.size(); ++r) {
    const uint16_t* weights = operands_[i].weights.data() + r * static_cast<size_t>(PitchOf(layers_[i]));
    for (size_t c = 0; c < sums.size(); ++c) sums[c] += Decode(weights[c]) * gradient[r];
  }
  for (size_t c = 0; c < sums.size(); ++c) {
    // Not where a value is no number: there nothing was cut off.
    const bool ends = i > 0 && layers_[i - 1].activation != 0 && taken[c] <= 0;
    sums[c] = ends ? 0 : Round(sums[c]);
  }
  return sums;
}

namespace {

// Each element within `of_value` of itself, and within `of_row` of the row's root of mean squares.
void CompareRow(const Network& network, const std::vector<double>& expected, const uint16_t* row, double of_value,
                double of_row) {
  double squares = 0;
  for (const double value : expected) squares += value * value / static_cast<double>(expected.size());
  const double allowed = of_row * std::sqrt(squares) + 1e-6;
  for (size_t c = 0; c < expected.size(); ++c)
    ASSERT_NEAR(network.Decode(row[c]), expected[c], allowed + of_value * std::fabs(expected[c])) << "column " << c;
}

}  // namespace

void CompareRow(const Network& network, const std::vector<double>& expected, const uint16_t* row) {
  const double relative = network.IsBf16() ? 0.04 : 0.01;
  CompareRow(network, expected, row, relative, relative);
}

void CompareRowOfOneLayer(const Network& network, const std::vector<double>& expected, const uint16_t* row) {
  CompareRow(network, expected, row, network.IsBf16() ? 1.0 / 128 : 1.0 / 1024, 1e-4);
}

void Compare(const Network& network, const std::vector<uint16_t>& x, size_t x_pitch, const std::vector<uint16_t>& y,
             size_t y_pitch, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    SCOPED_TRACE(testing::Message() << "row " << row);
    const auto expected = network.Reference(x.data() + static_cast<size_t>(row) * x_pitch);
    CompareRow(network, expected, y.data() + static_cast<size_t>(row) * y_pitch);
    if (testing::Test::HasFatalFailure()) return;
  }
}

std::vector<uint16_t> LaunchAndCompare(Gpu& gpu, const Network& network, const tally_pipeline* pipeline,
                                       const LaunchShape& shape, uint32_t seed) {
  const auto x_pitch = static_cast<size_t>(network.input() + shape.x_padding);
  const auto y_pitch = static_cast<size_t>(network.output() + shape.y_padding);
  const auto rows = static_cast<size_t>(shape.rows);
  const std::vector<uint16_t> dense = network.RandomRows(shape.rows, seed);
  // What lies between rows is NaN: whoever reads it spoils the result.
  std::vector<uint16_t> x(rows * x_pitch + 64, 0x7fff), y(rows * y_pitch + 64 * y_pitch, kUntouched);
  for (size_t r = 0; r < rows; ++r)
    std::copy_n(dense.data() + r * static_cast<size_t>(network.input()), network.input(), x.data() + r * x_pitch);
  void* const x_on_gpu = gpu.Upload(x);
  void* const y_on_gpu = gpu.Upload(y);
  EXPECT_EQ(tallyPipelineLaunch(pipeline, shape.stream, x_on_gpu, x_pitch, y_on_gpu, y_pitch, shape.rows), 0)
      << tallyPipelineError(pipeline);
  EXPECT_EQ(gpu.Synchronize(), CUDA_SUCCESS);
  gpu.Read(y.data(), y_on_gpu, 2 * y.size());
  Compare(network, x, x_pitch, y, y_pitch, shape.rows);
  for (size_t k = 0; k < y.size(); ++k) {
    const bool is_result = k / y_pitch < rows && k % y_pitch < static_cast<size_t>(network.output());
    if (!is_result && y[k] != kUntouched) {
      ADD_FAILURE() << "written outside of the result, at element " << k;
      break;
    }
  }
  return y;
}

}  // namespace tally::pipelines
