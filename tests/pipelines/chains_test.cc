// The library on a GPU, through its C API: chains against a reference, each launch shape, and bad input. Runs on the
// software GPU natively and under tally-run (CMakeLists.txt), and on a real one: each chain is one that it takes, too.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <set>
#include <thread>

#include "tests/pipelines/network.h"

namespace tally::pipelines {
namespace {

// With fewer a pipeline is refused, on the largest GPU tried (132 multiprocessors).
constexpr int64_t kMostRows = 4096;

struct Destroy {
  void operator()(tally_pipeline* pipeline) const { tallyPipelineDestroy(pipeline); }
};
using PipelinePtr = std::unique_ptr<tally_pipeline, Destroy>;

PipelinePtr Instantiate(const Network& network, int64_t max_rows = kMostRows) {
  PipelinePtr pipeline(network.Build());
  EXPECT_EQ(tallyPipelineInstantiate(pipeline.get(), max_rows), 0) << tallyPipelineError(pipeline.get());
  return pipeline;
}

std::vector<NetworkLayer> TwoLayers(int width) {
  return {{.in = width, .out = width, .activation = TALLY_PIPELINE_RELU}, {.in = width, .out = width}};
}

TEST(PipelineChains, RandomOnesAreRightForEachNumberOfRows) {
  std::mt19937 random(2);
  for (uint32_t seed = 0; seed < 6; ++seed) {
    Gpu gpu;
    const auto dtype = seed % 2 == 0 ? TALLY_PIPELINE_BF16 : TALLY_PIPELINE_FP16;
    const Network network(gpu, dtype, Network::RandomLayers(random), seed, seed % 3 == 0 ? 0 : 8);
    SCOPED_TRACE(network.Describe());
    const PipelinePtr pipeline = Instantiate(network);
    for (const int64_t rows : {0, 1, 63, 64, 65, 129, 1000}) {
      SCOPED_TRACE(testing::Message() << rows << " rows");
      const auto odd = static_cast<int>(rows % 6);
      LaunchAndCompare(gpu, network, pipeline.get(),
                       {.rows = rows, .x_padding = 8 * (odd % 3), .y_padding = 8 * (odd % 2)},
                       seed + static_cast<uint32_t>(rows));
      if (HasFailure()) return;
    }
  }
}

TEST(PipelineChains, RandomLargeOnesAreRight) {
  std::mt19937 random(7);
  for (uint32_t seed = 0; seed < 3; ++seed) {
    Gpu gpu;
    const auto dtype = seed % 2 == 0 ? TALLY_PIPELINE_BF16 : TALLY_PIPELINE_FP16;
    const Network network(gpu, dtype, Network::RandomLargeLayers(random), seed, seed % 3 == 0 ? 8 : 0);
    SCOPED_TRACE(network.Describe());
    // So many that each multiprocessor has two tiles and one of them three, in one or two warpgroups.
    // Far fewer on a GPU of 132: the reference would take a minute.
    const int64_t many = std::min<int64_t>(64 * (2 * gpu.Multiprocessors() + 1) - 5, 2200);
    const PipelinePtr pipeline = Instantiate(network, std::max(many, kMostRows));
    tally_pipeline_plan plan{};
    ASSERT_EQ(tallyPipelineQuery(pipeline.get(), 1, &plan), 0);
    EXPECT_EQ(plan.weights_resident, 0);
    for (const int64_t rows : {int64_t{1}, int64_t{130}, seed == 0 ? many : 70}) {
      SCOPED_TRACE(testing::Message() << rows << " rows");
      LaunchAndCompare(gpu, network, pipeline.get(), {.rows = rows}, seed + static_cast<uint32_t>(rows));
      if (HasFailure()) return;
    }
  }
}

TEST(PipelineChains, ASingleLayerIsRight) {
  for (const NetworkLayer layer : {NetworkLayer{.in = 8, .out = 16}, NetworkLayer{.in = 512, .out = 256}}) {
    Gpu gpu;
    const Network network(gpu, TALLY_PIPELINE_BF16, {layer}, 5);
    SCOPED_TRACE(network.Describe());
    const PipelinePtr pipeline = Instantiate(network);
    LaunchAndCompare(gpu, network, pipeline.get(), {.rows = 200}, 9);
  }
}

// They share instructions, and each has its own weights and bias.
TEST(PipelineChains, LayersThatAreAlikeAreRight) {
  Gpu gpu;
  const NetworkLayer layer{.in = 128, .out = 128, .activation = TALLY_PIPELINE_RELU};
  const Network network(gpu, TALLY_PIPELINE_BF16, std::vector(8, layer), 5);
  const PipelinePtr pipeline = Instantiate(network);
  tally_pipeline_plan plan{};
  ASSERT_EQ(tallyPipelineQuery(pipeline.get(), 70, &plan), 0);
  EXPECT_EQ(plan.weights_resident, 0);
  LaunchAndCompare(gpu, network, pipeline.get(), {.rows = 70}, 9);
}

// Its first layer is too wide for registers: computed in chunks.
std::vector<NetworkLayer> Tower() {
  return {{.in = 16, .out = 512, .activation = TALLY_PIPELINE_RELU},
          {.in = 512, .out = 256, .activation = TALLY_PIPELINE_RELU},
          {.in = 256, .out = 64, .activation = TALLY_PIPELINE_RELU}};
}

TEST(PipelineChains, AWideFirstLayerIsRight) {
  std::vector<NetworkLayer> longer = Tower();
  longer.push_back({.in = 64, .out = 16});
  const std::vector<NetworkLayer> two = {{.in = 72, .out = 384, .activation = TALLY_PIPELINE_SILU},
                                         {.in = 384, .out = 48, .norm = TALLY_PIPELINE_LAYER_NORM}};
  const std::vector<NetworkLayer> back = {{.in = 128, .out = 384, .activation = TALLY_PIPELINE_GELU_TANH},
                                          {.in = 384, .out = 128, .residual = true},
                                          {.in = 128, .out = 128, .concat = TALLY_PIPELINE_INPUT_FIRST}};
  const std::pair<std::vector<NetworkLayer>, tally_pipeline_dtype> networks[] = {{Tower(), TALLY_PIPELINE_BF16},
                                                                                 {longer, TALLY_PIPELINE_FP16},
                                                                                 {two, TALLY_PIPELINE_BF16},
                                                                                 {back, TALLY_PIPELINE_FP16}};
  for (const auto& [layers, dtype] : networks) {
    Gpu gpu;
    const Network network(gpu, dtype, layers, 5);
    SCOPED_TRACE(network.Describe());
    // Several tiles for each warpgroup, one more for some, and the last is not full.
    const int64_t many = std::min<int64_t>(64 * (2 * gpu.Multiprocessors() + 1) - 5, 2200);
    const PipelinePtr pipeline = Instantiate(network, std::max(many, kMostRows));
    for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{64}, layers.size() == 3 ? many : 130}) {
      SCOPED_TRACE(testing::Message() << rows << " rows");
      LaunchAndCompare(gpu, network, pipeline.get(), {.rows = rows}, 9);
      if (HasFailure()) return;
    }
  }
}

// Each form of the kernel that a plan may name: one to three warpgroups of a block, several tiles for each; and weights
// that pass through a ring.
TEST(PipelineChains, EachPlanIsRight) {
  struct Case {
    std::vector<NetworkLayer> layers;
    bool is_resident;
  };
  const std::vector<NetworkLayer> wide = {{.in = 256, .out = 256, .activation = TALLY_PIPELINE_RELU},
                                          {.in = 256, .out = 128, .concat = TALLY_PIPELINE_INPUT_LAST}};
  for (const Case& one : {Case{TwoLayers(64), true}, Case{wide, false}}) {
    Gpu gpu;
    const Network network(gpu, TALLY_PIPELINE_BF16, one.layers, 5);
    SCOPED_TRACE(network.Describe());
    // A little more than one tile for each multiprocessor: a second warpgroup has some, too.
    const int64_t many = 64 * (gpu.Multiprocessors() + 2) + 20;
    // And, the weights being there, a second tile for some of four warpgroups.
    const int64_t several = 64 * (4 * gpu.Multiprocessors() + 9) - 5;
    const PipelinePtr pipeline = Instantiate(network, std::max(several, kMostRows));
    std::set<int> warpgroups;
    for (const int64_t rows : {int64_t{100}, many, one.is_resident ? several : 1}) {
      SCOPED_TRACE(testing::Message() << rows << " rows");
      tally_pipeline_plan plan{};
      ASSERT_EQ(tallyPipelineQuery(pipeline.get(), rows, &plan), 0);
      EXPECT_EQ(plan.weights_resident, one.is_resident ? 1 : 0);
      warpgroups.insert(plan.warpgroups);
      LaunchAndCompare(gpu, network, pipeline.get(), {.rows = rows}, 9);
      if (HasFailure()) return;
    }
    EXPECT_GE(warpgroups.size(), 2u);
  }
}

TEST(PipelineChains, NewWeightsCountFromTheNextLaunchOn) {
  Gpu gpu;
  Network network(gpu, TALLY_PIPELINE_BF16, TwoLayers(32), 1);
  const PipelinePtr pipeline = Instantiate(network);
  const auto first = LaunchAndCompare(gpu, network, pipeline.get(), {.rows = 70}, 3);
  network.ChangeWeights(2);
  EXPECT_NE(LaunchAndCompare(gpu, network, pipeline.get(), {.rows = 70}, 3), first);
}

void ExpectNanInItsRowAlone(const std::vector<NetworkLayer>& layers) {
  Gpu gpu;
  const Network network(gpu, TALLY_PIPELINE_BF16, layers, 1);
  const PipelinePtr pipeline = Instantiate(network);
  const auto in = static_cast<size_t>(network.input()), out = static_cast<size_t>(network.output());
  auto x = network.RandomRows(70, 1);
  x[5 * in + 7] = 0x7fc0;
  void* const x_on_gpu = gpu.Upload(x);
  std::vector<uint16_t> y(70 * out);
  void* const y_on_gpu = gpu.Upload(y);
  ASSERT_EQ(tallyPipelineLaunch(pipeline.get(), nullptr, x_on_gpu, in, y_on_gpu, out, 70), 0);
  ASSERT_EQ(gpu.Synchronize(), CUDA_SUCCESS);
  gpu.Read(y.data(), y_on_gpu, 2 * y.size());
  for (size_t k = 0; k < y.size(); ++k) EXPECT_EQ(std::isnan(network.Decode(y[k])), k / out == 5) << k;
}

TEST(PipelineChains, NanPassesAsInEager) {
  ExpectNanInItsRowAlone(TwoLayers(32));
  ExpectNanInItsRowAlone(Tower());
}

template <typename Launches>
void Capture(CUstream stream, const Launches& launches, CUgraphExec* executable) {
  ASSERT_EQ(
      Gpu::Find<decltype(::cuStreamBeginCapture_v2)>("cuStreamBeginCapture_v2")(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
      CUDA_SUCCESS);
  launches();
  CUgraph graph = nullptr;
  ASSERT_EQ(Gpu::Find<decltype(::cuStreamEndCapture)>("cuStreamEndCapture")(stream, &graph), CUDA_SUCCESS);
  ASSERT_EQ(Gpu::Find<decltype(::cuGraphInstantiateWithFlags)>("cuGraphInstantiateWithFlags")(executable, graph, 0),
            CUDA_SUCCESS);
}

// The output of one layer's pipeline is the input of the next; and a graph repeats both, with what is there then.
TEST(PipelineChains, CapturedLaunchesReadWhatIsThereWhenTheyRun) {
  Gpu gpu;
  const Network network(gpu, TALLY_PIPELINE_BF16, TwoLayers(32), 1);
  const PipelinePtr pipeline = Instantiate(network);
  CUstream stream = nullptr;
  ASSERT_EQ(Gpu::Find<decltype(::cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  const auto first = network.RandomRows(100, 1), second = network.RandomRows(100, 2);
  void* const x = gpu.Upload(first);
  std::vector<uint16_t> y(100 * 32);
  void* const y_on_gpu = gpu.Upload(y);
  CUgraphExec executable = nullptr;
  const auto launch = [&] { return tallyPipelineLaunch(pipeline.get(), stream, x, 32, y_on_gpu, 32, 100); };
  Capture(
      stream, [&] { ASSERT_EQ(launch(), 0) << tallyPipelineError(pipeline.get()); }, &executable);
  for (const auto* rows : {&first, &second}) {
    gpu.Write(x, rows->data(), 2 * rows->size());
    ASSERT_EQ(Gpu::Find<decltype(::cuGraphLaunch)>("cuGraphLaunch")(executable, stream), CUDA_SUCCESS);
    ASSERT_EQ(gpu.Synchronize(), CUDA_SUCCESS);
    gpu.Read(y.data(), y_on_gpu, 2 * y.size());
    Compare(network, *rows, 32, y, 32, 100);
  }
}

// Of the rows that come of many rounds, each on the results of the one before: a tile that is lost, or overtaken,
// changes all after it. Each form of the kernel, directly and as a graph; the digest is the same wherever and beside
// whomever it runs (tests/integration/pipelines_test.py).
TEST(PipelineChains, RoundsOnTheirOwnResultsGiveTheSameBits) {
  const std::pair<const char*, std::vector<NetworkLayer>> networks[] = {
      {"resident",
       {{.in = 64, .out = 64, .activation = TALLY_PIPELINE_RELU},
        {.in = 64, .out = 64, .norm = TALLY_PIPELINE_LAYER_NORM}}},
      {"streamed",
       {{.in = 256, .out = 256, .activation = TALLY_PIPELINE_RELU},
        {.in = 256, .out = 256, .norm = TALLY_PIPELINE_RMS_NORM, .concat = TALLY_PIPELINE_INPUT_LAST}}},
      {"wide",
       {{.in = 64, .out = 512, .activation = TALLY_PIPELINE_SILU},
        {.in = 512, .out = 64, .norm = TALLY_PIPELINE_LAYER_NORM}}}};
  constexpr int kRounds = 2;
  Gpu gpu;
  // Several tiles for each warpgroup, and the last is not full. Of a large GPU only the first blocks have some.
  const int64_t many = std::min<int64_t>(64 * (6 * gpu.Multiprocessors() + 1) - 5, kMostRows);
  for (const auto& [name, layers] : networks) {
    const Network network(gpu, TALLY_PIPELINE_BF16, layers, 5);
    const PipelinePtr pipeline = Instantiate(network);
    const auto width = static_cast<size_t>(network.input());
    uint64_t digest = 0xcbf29ce484222325;
    for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{130}, many}) {
      std::vector<uint16_t> values = network.RandomRows(std::max<int64_t>(rows, 1), 3);
      void* const x = gpu.Upload(values);
      void* const y = gpu.Upload(values);
      CUstream stream = nullptr;
      ASSERT_EQ(Gpu::Find<decltype(::cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      const auto to_and_fro = [&] {
        ASSERT_EQ(tallyPipelineLaunch(pipeline.get(), stream, x, width, y, width, rows), 0);
        ASSERT_EQ(tallyPipelineLaunch(pipeline.get(), stream, y, width, x, width, rows), 0);
      };
      for (int round = 0; round < kRounds; ++round) to_and_fro();
      CUgraphExec graph = nullptr;
      Capture(stream, to_and_fro, &graph);
      for (int round = 0; round < kRounds; ++round)
        ASSERT_EQ(Gpu::Find<decltype(::cuGraphLaunch)>("cuGraphLaunch")(graph, stream), CUDA_SUCCESS);
      ASSERT_EQ(gpu.Synchronize(), CUDA_SUCCESS);
      gpu.Read(values.data(), x, 2 * values.size());
      for (const uint16_t value : values) digest = (digest ^ value) * 0x100000001b3;
    }
    std::printf("digest: %s %016llx\n", name, static_cast<unsigned long long>(digest));
  }
}

TEST(PipelineChains, SeveralThreadsLaunchOnePipeline) {
  Gpu gpu;
  const Network network(gpu, TALLY_PIPELINE_BF16, TwoLayers(32), 1);
  const PipelinePtr pipeline = Instantiate(network);
  constexpr int kThreads = 4, kLaunches = 10;
  std::vector<std::vector<uint16_t>> x, y(kThreads, std::vector<uint16_t>(80 * 32));
  std::vector<void*> x_on_gpu, y_on_gpu;
  for (uint32_t t = 0; t < kThreads; ++t) {
    x.push_back(network.RandomRows(80, t));
    x_on_gpu.push_back(gpu.Upload(x.back()));
    y_on_gpu.push_back(gpu.Upload(y[t]));
  }
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      gpu.MakeCurrent();
      CUstream stream = nullptr;
      Gpu::Find<decltype(::cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING);
      for (int k = 0; k < kLaunches; ++k)
        failures += tallyPipelineLaunch(pipeline.get(), stream, x_on_gpu[t], 32, y_on_gpu[t], 32, 80) != 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  ASSERT_EQ(gpu.Synchronize(), CUDA_SUCCESS);
  for (size_t t = 0; t < kThreads; ++t) {
    gpu.Read(y[t].data(), y_on_gpu[t], 2 * y[t].size());
    Compare(network, x[t], 32, y[t], 32, 80);
  }
}

// ---------------------------------------------------------------- bad input

void ExpectRefused(int result, const tally_pipeline* pipeline, const std::string& sentence) {
  EXPECT_NE(result, 0) << sentence;
  EXPECT_NE(std::string(tallyPipelineError(pipeline)).find(sentence), std::string::npos)
      << tallyPipelineError(pipeline);
}

TEST(PipelineChains, WhatCannotBeLaunchedIsASentenceAndLaunchesNothing) {
  Gpu gpu;
  const Network network(gpu, TALLY_PIPELINE_BF16, TwoLayers(32), 1);
  const PipelinePtr pipeline = Instantiate(network);
  std::vector<uint16_t> y(1000 * 32, 0xabcd);
  char* const x = static_cast<char*>(gpu.Upload(network.RandomRows(1000, 1)));
  char* const out = static_cast<char*>(gpu.Upload(y));
  const auto launch = [&](void* from, size_t x_pitch, void* to, size_t y_pitch, int64_t rows) {
    return tallyPipelineLaunch(pipeline.get(), nullptr, from, x_pitch, to, y_pitch, rows);
  };
  ExpectRefused(launch(x, 32, out, 32, kMostRows + 1), pipeline.get(), "rows; 0 to 4096 were instantiated");
  ExpectRefused(launch(x, 32, out, 32, -1), pipeline.get(), "rows; 0 to 4096 were instantiated");
  ExpectRefused(launch(x, 32, out, 32, INT64_MAX), pipeline.get(), "rows; 0 to 4096 were instantiated");
  ExpectRefused(launch(nullptr, 32, out, 32, 100), pipeline.get(), "is null");
  ExpectRefused(launch(x, 32, nullptr, 32, 100), pipeline.get(), "is null");
  ExpectRefused(launch(x + 2, 32, out, 32, 100), pipeline.get(), "not aligned to 16 bytes");
  ExpectRefused(launch(x, 24, out, 32, 100), pipeline.get(), "a pitch of 24 elements for 32 columns of the input");
  ExpectRefused(launch(x, 32, out, 36, 100), pipeline.get(), "a pitch of 36 elements for 32 columns of the output");
  ExpectRefused(launch(x, SIZE_MAX / 2, out, 32, 100), pipeline.get(), "a pitch of");
  ASSERT_EQ(gpu.Synchronize(), CUDA_SUCCESS);
  gpu.Read(y.data(), out, 2 * y.size());
  for (const uint16_t value : y) ASSERT_EQ(value, 0xabcd);
  LaunchAndCompare(gpu, network, pipeline.get(), {.rows = 100}, 3);  // and it still works
}

TEST(PipelineChains, WhatIsNoChainIsASentence) {
  Gpu gpu;
  char* const memory = static_cast<char*>(gpu.Allocate(1 << 20));
  EXPECT_EQ(tallyPipelineCreate(static_cast<tally_pipeline_dtype>(7)), nullptr);
  const auto refused = [&](const std::string& sentence, auto build) {
    const PipelinePtr pipeline(tallyPipelineCreate(TALLY_PIPELINE_BF16));
    ASSERT_NE(pipeline, nullptr);
    ExpectRefused(build(pipeline.get()), pipeline.get(), sentence);
  };
  using P = tally_pipeline;
  refused("no linear layer", [](P* p) { return tallyPipelineInstantiate(p, kMostRows); });
  refused("the weights are null", [](P* p) { return tallyPipelineAddLinear(p, nullptr, 32, nullptr, 32, 32); });
  refused("aligned", [&](P* p) { return tallyPipelineAddLinear(p, memory + 2, 32, nullptr, 32, 32); });
  refused("", [&](P* p) { return tallyPipelineAddLinear(p, memory, 24, nullptr, 32, 32); });
  refused("", [&](P* p) { return tallyPipelineAddLinear(p, memory, SIZE_MAX, nullptr, INT32_MAX, INT32_MAX); });
  refused("", [&](P* p) { return tallyPipelineAddLinear(p, memory, 32, nullptr, -32, 32); });
  refused("", [](P* p) { return tallyPipelineAddActivation(p, TALLY_PIPELINE_RELU); });
  refused("from 272 on the library is at its roof", [&](P* p) {
    tallyPipelineAddLinear(p, memory, 32, nullptr, 32, 512);
    return tallyPipelineInstantiate(p, kMostRows);
  });
  refused("less than a quarter of the GPU", [&](P* p) {
    tallyPipelineAddLinear(p, memory, 32, nullptr, 32, 32);
    return tallyPipelineInstantiate(p, 64);
  });
  refused("rows; 1 to 2^30", [&](P* p) {
    tallyPipelineAddLinear(p, memory, 32, nullptr, 32, 32);
    return tallyPipelineInstantiate(p, INT64_MAX);
  });
  refused("not instantiated", [&](P* p) {
    tallyPipelineAddLinear(p, memory, 32, nullptr, 32, 32);
    return tallyPipelineLaunch(p, nullptr, memory, 32, memory, 32, 1);
  });
  refused("layer 1 takes 32 hidden columns, and layer 0 gives 16", [&](P* p) {
    tallyPipelineAddLinear(p, memory, 32, nullptr, 32, 16);
    tallyPipelineAddLinear(p, memory, 32, nullptr, 32, 16);
    return tallyPipelineInstantiate(p, kMostRows);
  });
  tallyPipelineDestroy(nullptr);
}

// Weights that were freed, and addresses that are nobody's, are a fault of the context as with any kernel: the stream
// says so, and the process lives. On a GPU what was freed may still be mapped, and after a fault nothing else runs.
TEST(PipelineChains, ForeignAndFreedMemoryIsAnErrorOfTheStream) {
  const bool is_software = Gpu().IsSoftware();
  for (const bool freed : {!is_software, is_software}) {
    Gpu gpu;
    const PipelinePtr pipeline(tallyPipelineCreate(TALLY_PIPELINE_BF16));
    void* weights = reinterpret_cast<void*>(0x7f0000001000);
    if (freed) {
      CUdeviceptr address = 0;
      ASSERT_EQ(Gpu::Find<decltype(::cuMemAlloc_v2)>("cuMemAlloc_v2")(&address, 4096), CUDA_SUCCESS);
      ASSERT_EQ(Gpu::Find<decltype(::cuMemFree_v2)>("cuMemFree_v2")(address), CUDA_SUCCESS);
      weights = reinterpret_cast<void*>(address);
    }
    void* const x = gpu.Allocate(1 << 16);
    ASSERT_EQ(tallyPipelineAddLinear(pipeline.get(), weights, 32, nullptr, 32, 32), 0);
    // Whoever stands between the program and the GPU may refuse a map of memory that is not the program's.
    if (tallyPipelineInstantiate(pipeline.get(), kMostRows) != 0) {
      EXPECT_NE(std::string(tallyPipelineError(pipeline.get())).find("the weights of layer 0"), std::string::npos)
          << tallyPipelineError(pipeline.get());
      continue;
    }
    ASSERT_EQ(tallyPipelineLaunch(pipeline.get(), nullptr, x, 32, x, 32, 64), 0);
    const CUresult result = gpu.Synchronize();
    EXPECT_TRUE(result != CUDA_SUCCESS || (freed && !is_software));
    if (result != CUDA_SUCCESS && !is_software) return;
  }
}

}  // namespace
}  // namespace tally::pipelines
