// Forward and backward passes through the C API, on a GPU: against a reference, in each form of the kernel, and bad
// input. Natively and under tally-run, as chains_test.cc.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "tests/pipelines/network.h"

namespace tally::pipelines {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kEnough = 4096;  // with fewer a pipeline is refused, on the largest GPU tried
constexpr uint16_t kUntouchedValue = 0xabcd;

struct DestroyTrained {
  void operator()(tally_pipeline* pipeline) const { tallyPipelineDestroy(pipeline); }
};
using TrainedPtr = std::unique_ptr<tally_pipeline, DestroyTrained>;

TrainedPtr Instantiated(const Network& network, bool with_dx, int64_t max_rows = kEnough) {
  TrainedPtr pipeline(network.Build());
  EXPECT_EQ(tallyPipelineInstantiateTraining(pipeline.get(), max_rows, with_dx ? 1 : 0), 0)
      << tallyPipelineError(pipeline.get());
  return pipeline;
}

// One pass forward and one back, and all that they read and write. Rows have `padding` elements between them, and
// buffers some behind them, which must stay.
class Step {
 public:
  Step(Gpu& gpu, const Network& network, const tally_pipeline* pipeline, int64_t rows, bool with_dx, uint32_t seed,
       size_t padding = 0)
      : gpu_(gpu), network_(network), pipeline_(pipeline), rows_(rows), with_dx_(with_dx), padding_(padding) {
    EXPECT_EQ(tallyPipelineQueryTraining(pipeline, rows, &plan_), 0) << tallyPipelineError(pipeline);
    x_ = Padded(network.RandomRows(rows, seed), In());
    dy_ = Padded(network.RandomValues(rows * network.output(), seed + 1), Out());
    y_.assign(static_cast<size_t>(rows) * Pitch(Out()) + 64, kUntouchedValue);
    dx_.assign(static_cast<size_t>(rows) * Pitch(In()) + 64, kUntouchedValue);
    saved_.assign(static_cast<size_t>(plan_.saved_bytes / 2) + 64, kUntouchedValue);
    dz_.assign(static_cast<size_t>(plan_.dz_bytes / 2) + 64, kUntouchedValue);
    for (auto& [values, at] : {std::pair(&x_, &x_at_),
                               {&dy_, &dy_at_},
                               {&y_, &y_at_},
                               {&dx_, &dx_at_},
                               {&saved_, &saved_at_},
                               {&dz_, &dz_at_}})
      *at = gpu.Upload(*values);
  }

  void Launch(CUstream stream = nullptr) const {
    ASSERT_EQ(tallyPipelineLaunchForward(pipeline_, stream, x_at_, Pitch(In()), y_at_, Pitch(Out()), saved_at_, rows_),
              0)
        << tallyPipelineError(pipeline_);
    ASSERT_EQ(tallyPipelineLaunchBackward(pipeline_, stream, dy_at_, Pitch(Out()), saved_at_, dz_at_,
                                          with_dx_ ? dx_at_ : nullptr, Pitch(In()), rows_),
              0)
        << tallyPipelineError(pipeline_);
  }
  void Read() {
    ASSERT_EQ(gpu_.Synchronize(), CUDA_SUCCESS);
    for (auto& [values, at] : {std::pair(&y_, y_at_), {&dx_, dx_at_}, {&saved_, saved_at_}, {&dz_, dz_at_}})
      gpu_.Read(values->data(), at, 2 * values->size());
  }
  void SetX(size_t row, size_t column, uint16_t value) {
    x_[row * Pitch(In()) + column] = value;
    gpu_.Write(x_at_, x_.data(), 2 * x_.size());
  }

  // Everything that was read, against the reference.
  void Compare() const {
    const auto& layers = network_.layers();
    for (size_t row = 0; row < static_cast<size_t>(rows_); ++row) {
      SCOPED_TRACE(testing::Message() << "row " << row);
      // Layer by layer, each from what the GPU has of the one before: so a rounding does not add up with others.
      const std::vector<double> x = network_.DecodeRow(x_.data() + row * Pitch(In()), network_.input());
      std::vector<std::vector<double>> taken = {x};
      for (size_t i = 0; i < layers.size(); ++i) {
        SCOPED_TRACE(testing::Message() << "what leaves layer " << i);
        const bool is_last = i + 1 == layers.size();
        const uint16_t* const values = is_last ? y_.data() + row * Pitch(Out()) : SavedRow(saved_, i, row);
        CompareRowOfOneLayer(network_, network_.Leaving(i, taken[i], x), values);
        taken.push_back(network_.DecodeRow(values, layers[i].out));
      }
      std::vector<double> gradient = network_.DecodeRow(dy_.data() + row * Pitch(Out()), network_.output());
      for (size_t i = layers.size(); i-- > (with_dx_ ? 0u : 1u);) {
        SCOPED_TRACE(testing::Message() << "gradient of what layer " << i << " takes");
        const uint16_t* const values = i == 0 ? dx_.data() + row * Pitch(In()) : SavedRow(dz_, i - 1, row);
        CompareRowOfOneLayer(network_, network_.Gradient(i, taken[i], gradient), values);
        gradient = network_.DecodeRow(values, layers[i].in);
      }
      if (testing::Test::HasFatalFailure()) return;
    }
    ExpectUntouched(y_, Out(), Pitch(Out()));
    ExpectUntouched(dx_, with_dx_ ? In() : 0, Pitch(In()));
    for (const auto* values : {&saved_, &dz_})
      for (size_t k = values->size() - 64; k < values->size(); ++k) ASSERT_EQ((*values)[k], kUntouchedValue);
  }

  const uint16_t* SavedRow(const std::vector<uint16_t>& values, size_t layer, size_t row) const {
    size_t before = 0;
    for (size_t i = 0; i < layer; ++i) before += static_cast<size_t>(network_.layers()[i].out);
    return values.data() + static_cast<size_t>(rows_) * before +
           row * static_cast<size_t>(network_.layers()[layer].out);
  }
  const std::vector<uint16_t>& saved() const { return saved_; }
  const std::vector<uint16_t>& dz() const { return dz_; }
  const std::vector<uint16_t>& dx() const { return dx_; }
  const tally_pipeline_training& plan() const { return plan_; }

 private:
  size_t In() const { return static_cast<size_t>(network_.input()); }
  size_t Out() const { return static_cast<size_t>(network_.output()); }
  size_t Pitch(size_t columns) const { return columns + padding_; }
  // What lies between rows is NaN: whoever reads it spoils the result.
  std::vector<uint16_t> Padded(const std::vector<uint16_t>& dense, size_t columns) const {
    std::vector<uint16_t> values(static_cast<size_t>(rows_) * Pitch(columns) + 64, 0x7fff);
    for (size_t row = 0; row < static_cast<size_t>(rows_); ++row)
      std::copy_n(dense.data() + row * columns, columns, values.data() + row * Pitch(columns));
    return values;
  }
  void ExpectUntouched(const std::vector<uint16_t>& values, size_t columns, size_t pitch) const {
    for (size_t k = 0; k < values.size(); ++k) {
      const bool is_result = k / pitch < static_cast<size_t>(rows_) && k % pitch < columns;
      ASSERT_TRUE(is_result || values[k] == kUntouchedValue) << "written outside of the result, at element " << k;
    }
  }

  Gpu& gpu_;
  const Network& network_;
  const tally_pipeline* pipeline_;
  int64_t rows_;
  bool with_dx_;
  size_t padding_;
  tally_pipeline_training plan_{};
  std::vector<uint16_t> x_, y_, dy_, dx_, saved_, dz_;
  void *x_at_ = nullptr, *y_at_ = nullptr, *dy_at_ = nullptr, *dx_at_ = nullptr, *saved_at_ = nullptr,
       *dz_at_ = nullptr;
};

void LaunchAndCompareStep(Step step) {
  step.Launch();
  step.Read();
  step.Compare();
}

std::vector<NetworkLayer> Trained(int layers, int width) {
  std::vector<NetworkLayer> all(static_cast<size_t>(layers),
                                {.in = width, .out = width, .activation = TALLY_PIPELINE_RELU});
  all.back().activation = 0;
  return all;
}

TEST(PipelineTraining, RandomOnesAreRightForEachNumberOfRows) {
  std::mt19937 random(3);
  for (uint32_t seed = 0; seed < 6; ++seed) {
    Gpu gpu;
    const auto dtype = seed % 2 == 0 ? TALLY_PIPELINE_BF16 : TALLY_PIPELINE_FP16;
    const bool with_dx = seed % 3 != 0;
    const Network network(gpu, dtype, Network::RandomTrainedLayers(random, false), seed, seed % 4 == 0 ? 8 : 0);
    SCOPED_TRACE(network.Describe());
    const TrainedPtr pipeline = Instantiated(network, with_dx);
    for (const int64_t rows : {0, 1, 63, 64, 65, 129, 500}) {
      SCOPED_TRACE(testing::Message() << rows << " rows");
      const Step step(gpu, network, pipeline.get(), rows, with_dx, seed, rows % 2 == 0 ? 8 : 0);
      EXPECT_EQ(step.plan().forward.weights_resident + step.plan().backward.weights_resident, 2);
      LaunchAndCompareStep(step);
      if (HasFailure()) return;
    }
  }
}

TEST(PipelineTraining, RandomLargeOnesAreRight) {
  std::mt19937 random(4);
  for (uint32_t seed = 0; seed < 4; ++seed) {
    Gpu gpu;
    const auto dtype = seed % 2 == 0 ? TALLY_PIPELINE_BF16 : TALLY_PIPELINE_FP16;
    const bool with_dx = seed % 3 != 0;
    const Network network(gpu, dtype, Network::RandomTrainedLayers(random, true), seed, seed % 4 == 0 ? 8 : 0);
    SCOPED_TRACE(network.Describe());
    // Each multiprocessor has two tiles and one of them three, in one or two warpgroups; but not on a GPU of 132.
    const int64_t many = std::min<int64_t>(64 * (2 * gpu.Multiprocessors() + 1) - 5, 1200);
    const TrainedPtr pipeline = Instantiated(network, with_dx, std::max(many, kEnough));
    for (const int64_t rows : {int64_t{1}, int64_t{130}, seed == 0 ? many : 70}) {
      SCOPED_TRACE(testing::Message() << rows << " rows");
      const Step step(gpu, network, pipeline.get(), rows, with_dx, seed);
      EXPECT_EQ(step.plan().forward.weights_resident + step.plan().backward.weights_resident, 0);
      LaunchAndCompareStep(step);
      if (HasFailure()) return;
    }
  }
}

// They share instructions, and each has its own weights, mask, and place to save.
TEST(PipelineTraining, LayersThatAreAlikeAreRight) {
  Gpu gpu;
  const Network network(gpu, TALLY_PIPELINE_BF16, Trained(8, 128), 5);
  const TrainedPtr pipeline = Instantiated(network, true);
  const Step step(gpu, network, pipeline.get(), 70, true, 9);
  EXPECT_EQ(step.plan().forward.weights_resident + step.plan().backward.weights_resident, 0);
  LaunchAndCompareStep(step);
}

TEST(PipelineTraining, EachPlanIsRight) {
  for (const int width : {64, 256}) {
    Gpu gpu;
    const Network network(gpu, TALLY_PIPELINE_BF16, Trained(width == 64 ? 2 : 3, width), 5);
    SCOPED_TRACE(network.Describe());
    // A little more than one tile for each multiprocessor: a second warpgroup has some, too.
    const int64_t many = 64 * (gpu.Multiprocessors() + 2) + 20;
    const TrainedPtr pipeline = Instantiated(network, true, std::max(many, kEnough));
    std::set<int> forward, backward;
    for (const int64_t rows : {int64_t{100}, many}) {
      SCOPED_TRACE(testing::Message() << rows << " rows");
      const Step step(gpu, network, pipeline.get(), rows, true, 9);
      forward.insert(step.plan().forward.warpgroups);
      backward.insert(step.plan().backward.warpgroups);
      EXPECT_EQ(step.plan().backward.weights_resident, width == 64 ? 1 : 0);
      LaunchAndCompareStep(step);
      if (HasFailure()) return;
    }
    EXPECT_GE(std::min(forward.size(), backward.size()), 2u);
  }
}

// ReLU of nothing is nothing and has no gradient; one that is no number passes it, as in PyTorch.
TEST(PipelineTraining, GradientsEndWhereReluGaveNothingAndNowhereElse) {
  for (const auto dtype : {TALLY_PIPELINE_BF16, TALLY_PIPELINE_FP16}) {
    Gpu gpu;
    const Network network(gpu, dtype, Trained(2, 48), 1);
    const TrainedPtr pipeline = Instantiated(network, true);
    Step step(gpu, network, pipeline.get(), 70, true, 3);
    step.SetX(5, 7, 0x7fff);
    step.Launch();
    step.Read();
    size_t zeros = 0;
    for (size_t row = 0; row < 70; ++row) {
      const uint16_t *saved = step.SavedRow(step.saved(), 0, row), *dz = step.SavedRow(step.dz(), 0, row);
      for (size_t c = 0; c < 48; ++c) {
        const double value = network.Decode(saved[c]);
        EXPECT_EQ(std::isnan(value), row == 5);
        EXPECT_EQ(network.Decode(dz[c]) == 0, value == 0) << "row " << row << " column " << c;
        EXPECT_FALSE(std::isnan(network.Decode(step.dx()[row * 48 + c])));
        zeros += value == 0;
      }
    }
    EXPECT_GT(zeros, 70 * 48 / 4u);
  }
}

TEST(PipelineTraining, CapturedStepsReadTheWeightsThatAreThereWhenTheyRun) {
  Gpu gpu;
  Network network(gpu, TALLY_PIPELINE_BF16, Trained(3, 32), 1);
  const TrainedPtr pipeline = Instantiated(network, true);
  Step step(gpu, network, pipeline.get(), 100, true, 3);
  CUstream stream = nullptr;
  ASSERT_EQ(Gpu::Find<decltype(::cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(
      Gpu::Find<decltype(::cuStreamBeginCapture_v2)>("cuStreamBeginCapture_v2")(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
      CUDA_SUCCESS);
  step.Launch(stream);
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  ASSERT_EQ(Gpu::Find<decltype(::cuStreamEndCapture)>("cuStreamEndCapture")(stream, &graph), CUDA_SUCCESS);
  ASSERT_EQ(Gpu::Find<decltype(::cuGraphInstantiateWithFlags)>("cuGraphInstantiateWithFlags")(&executable, graph, 0),
            CUDA_SUCCESS);
  std::vector<uint16_t> first;
  for (const uint32_t seed : {2, 3}) {
    network.ChangeWeights(seed);
    ASSERT_EQ(Gpu::Find<decltype(::cuGraphLaunch)>("cuGraphLaunch")(executable, stream), CUDA_SUCCESS);
    step.Read();
    step.Compare();
    EXPECT_NE(step.dx(), first);
    first = step.dx();
  }
}

// ---------------------------------------------------------------- bad input

void ExpectSentence(int result, const tally_pipeline* pipeline, const std::string& sentence) {
  EXPECT_NE(result, 0) << sentence;
  EXPECT_THAT(tallyPipelineError(pipeline), HasSubstr(sentence));
}

TEST(PipelineTraining, WhatHasNoBackwardPassIsASentence) {
  Gpu gpu;
  const auto refused = [&](std::vector<NetworkLayer> layers, const std::string& sentence, bool with_dx = true) {
    const Network network(gpu, TALLY_PIPELINE_BF16, std::move(layers), 1);
    const TrainedPtr pipeline(network.Build());
    ExpectSentence(tallyPipelineInstantiateTraining(pipeline.get(), kEnough, with_dx), pipeline.get(), sentence);
  };
  const auto with = [&](auto change) {
    auto layers = Trained(3, 32);
    change(layers);
    return layers;
  };
  using Layers = std::vector<NetworkLayer>&;
  refused(Trained(1, 32), "fewer than two layers");
  refused(with([](Layers l) { l[1].activation = TALLY_PIPELINE_SILU; }), "layer 1 has an activation other than ReLU");
  refused(with([](Layers l) { l[2].activation = TALLY_PIPELINE_RELU; }), "layer 2 has an activation, and is the last");
  refused(with([](Layers l) { l[2].norm = TALLY_PIPELINE_LAYER_NORM; }), "layer 2 has a norm");
  refused(with([](Layers l) { l[1].residual = true; }), "layer 1 has the chain's input added");
  refused(with([](Layers l) { l[1].concat = TALLY_PIPELINE_INPUT_LAST; }), "layer 1 has the chain's input joined");
  refused(with([](Layers l) { l[0].out = l[1].in = 512; }), "layer 0 has more columns than stay in registers");
  refused(with([](Layers l) { l[0].in = 40; }), "no gradient of 40 columns of input");
  refused(with([](Layers l) { l[0].in = 384; }), "no gradient of 384 columns of input");
  const Network wide(gpu, TALLY_PIPELINE_BF16, with([](Layers l) { l[0].in = 384; }), 1);
  EXPECT_EQ(tallyPipelineInstantiateTraining(TrainedPtr(wide.Build()).get(), kEnough, 0), 0);
}

TEST(PipelineTraining, WhatCannotBeLaunchedIsASentenceAndLaunchesNothing) {
  Gpu gpu;
  const Network network(gpu, TALLY_PIPELINE_BF16, Trained(2, 32), 1);
  const TrainedPtr with_dx = Instantiated(network, true), without = Instantiated(network, false);
  std::vector<uint16_t> untouched(1 << 16, kUntouchedValue);
  char* const memory = static_cast<char*>(gpu.Upload(untouched));
  char *const x = memory, *const y = memory + (1 << 14), *const saved = y + (1 << 14), *const dz = saved + (1 << 15);
  char* const dx = dz + (1 << 14);
  const auto forward = [&](void* from, size_t pitch, void* to, void* save, int64_t rows) {
    return tallyPipelineLaunchForward(with_dx.get(), nullptr, from, pitch, to, 32, save, rows);
  };
  const auto backward = [&](const TrainedPtr& p, void* dy, void* save, void* z, void* d, size_t pitch, int64_t rows) {
    return tallyPipelineLaunchBackward(p.get(), nullptr, dy, 32, save, z, d, pitch, rows);
  };
  const tally_pipeline* const p = with_dx.get();
  ExpectSentence(forward(x, 32, y, saved, kEnough + 1), p, "rows; 0 to 4096 were instantiated");
  ExpectSentence(forward(x, 32, y, saved, -1), p, "rows; 0 to 4096 were instantiated");
  ExpectSentence(forward(nullptr, 32, y, saved, 100), p, "x is null");
  ExpectSentence(forward(x, 32, nullptr, saved, 100), p, "y is null");
  ExpectSentence(forward(x, 32, y, nullptr, 100), p, "saved is null");
  ExpectSentence(forward(x + 8, 32, y, saved, 100), p, "x is not aligned to 16 bytes");
  ExpectSentence(forward(x, 24, y, saved, 100), p, "a pitch of 24 elements for 32 columns of x");
  ExpectSentence(forward(x, 32, x + 64 * 99, saved, 100), p, "x and y overlap");
  ExpectSentence(forward(x, 32, y, y + 64 * 99, 100), p, "y and saved overlap");
  // The mask is behind what was saved.
  ExpectSentence(forward(x, 32, saved + 64 * 100, saved, 100), p, "y and saved overlap");
  ExpectSentence(backward(with_dx, y, saved, dz, dx, 32, INT64_MAX), p, "rows; 0 to 4096 were instantiated");
  ExpectSentence(backward(with_dx, nullptr, saved, dz, dx, 32, 100), p, "dy is null");
  ExpectSentence(backward(with_dx, y, nullptr, dz, dx, 32, 100), p, "saved is null");
  ExpectSentence(backward(with_dx, y, saved, nullptr, dx, 32, 100), p, "dz is null");
  ExpectSentence(backward(with_dx, y, saved, dz, nullptr, 32, 100), p, "dx is null");
  ExpectSentence(backward(with_dx, y, saved, dz, dx, 36, 100), p, "a pitch of 36 elements for 32 columns of dx");
  ExpectSentence(backward(with_dx, y, saved, saved, dx, 32, 100), p, "saved and dz overlap");
  ExpectSentence(backward(with_dx, y, saved, dz, y, 32, 100), p, "dy and dx overlap");
  ExpectSentence(backward(without, y, saved, dz, dx, 32, 100), without.get(), "dx is not null");
  ExpectSentence(tallyPipelineLaunch(p, nullptr, x, 32, y, 32, 100), p, "instantiated for training");
  ExpectSentence(tallyPipelineQueryTraining(p, 1, nullptr), p, "training is null");
  ExpectSentence(tallyPipelineInstantiate(with_dx.get(), kEnough), p, "is instantiated");
  const TrainedPtr inference(network.Build());
  ExpectSentence(tallyPipelineLaunchForward(inference.get(), nullptr, x, 32, y, 32, saved, 1), inference.get(),
                 "not instantiated");
  ASSERT_EQ(tallyPipelineInstantiate(inference.get(), kEnough), 0);
  ExpectSentence(tallyPipelineLaunchForward(inference.get(), nullptr, x, 32, y, 32, saved, 1), inference.get(),
                 "instantiated for inference");
  // Columns beside each other do not.
  const auto beside = [&](char* to) { return tallyPipelineLaunchForward(p, nullptr, x, 64, to, 64, saved, 100); };
  ExpectSentence(beside(x + 48), p, "x and y overlap");
  ASSERT_EQ(gpu.Synchronize(), CUDA_SUCCESS);
  gpu.Read(untouched.data(), memory, 2 * untouched.size());
  for (const uint16_t value : untouched) ASSERT_EQ(value, kUntouchedValue);
  EXPECT_EQ(beside(x + 64), 0);
  LaunchAndCompareStep(Step(gpu, network, with_dx.get(), 100, true, 3));  // and it still works
}

}  // namespace
}  // namespace tally::pipelines
