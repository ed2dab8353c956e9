#include "server/executor/issue/remembered_graphs.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>

#include "tests/server/executor/issue/launch_attributes.h"
#include "tests/server/executor/issue/remembered_graphs_fixture.h"

namespace tally::server {
namespace {

using scheduler::IssueWay;
using scheduler::WayChoice;

// Of an odd constant.
constexpr uint64_t InverseOf(uint64_t value) {
  uint64_t inverse = value;
  for (int i = 0; i < 6; ++i) inverse *= 2 - value * inverse;
  return inverse;
}

TEST_F(RememberedGraphsTest, TheBitsAreThoseOfProgramOrder) {
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return random() % n; };
  for (int program = 0; program < 12; ++program) {
    std::vector<Step> steps(2 + below(63));
    for (Step& step : steps) step = {.out = below(kBuffers), .in = below(kBuffers)};
    std::vector<size_t> buffers(kBuffers);
    std::iota(buffers.begin(), buffers.end(), 0);
    for (int use = 0; use < 6; ++use) {
      std::vector<Step> renamed = steps;
      for (Step& step : renamed) {
        step.out = buffers[step.out];
        step.in = buffers[step.in];
        step.addend = static_cast<uint32_t>(below(1000));
        step.rounds = below(4) == 0 ? 400 : 20;
      }
      Run(renamed);
      // What stands around it in the stream.
      const Step alone{.out = below(kBuffers), .in = below(kBuffers), .addend = 3};
      PendingLaunch launch = LaunchOf(alone);
      ASSERT_EQ(LaunchOriginal(launch), CUDA_SUCCESS);
      Expect(alone);
      std::shuffle(buffers.begin(), buffers.end(), random);
    }
    ExpectMemory();
  }
  EXPECT_EQ(counts().shapes_built, 12u);
  EXPECT_EQ(counts().graph_launches, counts().shapes_built * 5);
}

TEST_F(RememberedGraphsTest, AShapeIsAGraphFromTheSecondTimeOn) {
  const std::vector<Step> steps = {{0, 1}, {2, 3}, {4, 0}};
  Run(steps);
  EXPECT_EQ(WatchedDriver::num_launches, 3);
  EXPECT_EQ(admission_.num_asked, 3);
  Run(steps);
  Run(steps);
  EXPECT_EQ(WatchedDriver::num_launches, 3);
  EXPECT_EQ(WatchedDriver::num_graph_launches, 2);
  EXPECT_EQ(admission_.num_asked, 5) << "once for each graph";
  EXPECT_EQ(counts().shapes_built, 1u);
  EXPECT_EQ(counts().launches_in_graphs, 6u);
  EXPECT_EQ(counts().launches_in_order, 3u);
  ExpectMemory();
  const auto reports = graphs_->Report();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].num_nodes, 3u);
  EXPECT_EQ(reports[0].num_levels, 2u);
  EXPECT_EQ(reports[0].num_tracks, 2u);
  EXPECT_EQ(reports[0].num_uses, 2u);
  EXPECT_EQ(reports[0].way, IssueWay::kGraph);
}

TEST_F(RememberedGraphsTest, AGraphIsWorkOfItsStreamAsLaunchesAre) {
  ManualClock clock;
  clock.Advance(std::chrono::seconds(1));
  BusyClock busy(clock, 0, nullptr);
  stream_.work = std::make_shared<StreamWork>(busy);
  const std::vector<Step> steps = {{0, 1}, {2, 3}, {4, 0}};
  Run(steps);
  EXPECT_EQ(busy.num_put(), 3u);
  stream_.work->OnSeen(3, clock.Now());
  Run(steps);
  EXPECT_EQ(WatchedDriver::num_graph_launches, 1);
  EXPECT_EQ(busy.num_put(), 4u);
  EXPECT_TRUE(busy.IsBusy());
  stream_.work = nullptr;
  ExpectMemory();
}

TEST_F(RememberedGraphsTest, OnlyNodesThatChangedAreToldSo) {
  std::vector<Step> steps = {{0, 1, 7}, {2, 3, 8}, {4, 0, 9}};
  Run(steps);
  Run(steps);
  Run(steps);
  EXPECT_EQ(WatchedDriver::num_updates, 0);
  steps[1].addend = 10;
  Run(steps);
  EXPECT_EQ(WatchedDriver::num_updates, 1);
  steps[2].num_blocks = kBlocks / 2;
  Run(steps);
  EXPECT_EQ(WatchedDriver::num_updates, 2);
  steps[0].num_threads = kThreads / 2;
  Run(steps);
  EXPECT_EQ(WatchedDriver::num_updates, 3);
  Run(steps);
  EXPECT_EQ(WatchedDriver::num_updates, 3);
  EXPECT_EQ(counts().parameter_updates, 3u);
  EXPECT_EQ(counts().graph_launches, 6u);
  ExpectMemory();
}

// Launches of earlier uses keep what they were made with.
TEST_F(RememberedGraphsTest, ParametersChangeWhileEarlierLaunchesAreStillToRun) {
  const CUdeviceptr word = ZeroedMemory(4);
  ASSERT_EQ(driver_.cuStreamWaitValue32_v2(stream_.real, word, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  for (uint32_t i = 0; i < 20; ++i) Run({{0, 1, i}, {2, 3, i + 1}, {4, 0, i + 2}});
  graphs_->ForgetAll();
  EXPECT_EQ(WatchedDriver::num_executables, 0) << "they are in flight, but not needed any more";
  ASSERT_EQ(driver_.cuMemsetD32Async(word, 1, 1, nullptr), CUDA_SUCCESS);
  ExpectMemory();
  EXPECT_EQ(counts().graph_launches, 19u);
}

TEST_F(RememberedGraphsTest, ShapesWhoseHashesAgreeHaveGraphsOfTheirOwn) {
  const auto mix = [](uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15;
    return hash ^ (hash >> 32);
  };
  // 1 behind 0, and 1 beside 0 with the geometry for which the hashes agree.
  const uint64_t before = mix(mix(mix(mix(0, 1), 1), 0), 1);
  const uint64_t wanted = mix(before, 1) ^ 1 /* edges */;
  const uint64_t geometry = before ^ (wanted ^ wanted >> 32) * InverseOf(0x9e3779b97f4a7c15);
  scheduler::Window window;
  const auto admit = [&](size_t out) {
    return *window.Admit(std::vector{AccessOf(out, scheduler::AccessKind::kReadWrite)});
  };
  scheduler::WindowShape chain, pair;
  chain.Add(admit(0), 1, 1);
  chain.Add(admit(0), 1, 1);
  window.Close();
  pair.Add(admit(1), 1, 1);
  pair.Add({.slot = 3, .edges = 0}, 1, geometry);
  ASSERT_EQ(chain.hash(), pair.hash());
  for (int use = 0; use < 3; ++use) {
    Batch behind = BatchOf({{0, 1, 7}, {0, 2, 8}}), beside = BatchOf({{0, 1, 7}, {2, 3, 8}});
    behind.shape = chain;
    beside.shape = pair;
    ASSERT_EQ(Issue(behind), CUDA_SUCCESS);
    ASSERT_EQ(Issue(beside), CUDA_SUCCESS);
    for (const Step& step : {Step{0, 1, 7}, Step{0, 2, 8}, Step{0, 1, 7}, Step{2, 3, 8}}) Expect(step);
  }
  ExpectMemory();
  const auto reports = graphs_->Report();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_NE(reports[0].num_levels, reports[1].num_levels);
}

TEST_F(RememberedGraphsTest, AKernelWithAGateOfItsOwnIsToldThatItIsNotUsed) {
  ptx_transforms::TransformOptions options;
  options.pipelines = {{"gate_entry"}};
  options.placement = ptx_transforms::Placement::kReplace;
  const auto gated = ptx_transforms::TransformText(kStep, options);
  ASSERT_TRUE(gated && gated->is_all_done());
  kernel_.function = Function(gated->text, "step");
  kernel_.gate.emplace().hidden_offset = static_cast<uint32_t>(gated->variants[0].hidden_parameter_offset);
  for (uint32_t i = 0; i < 4; ++i) Run({{0, 1, i}, {2, 3, 8}, {4, 0, i}});
  EXPECT_EQ(counts().graph_launches, 3u);
  ExpectMemory();
}

// Nothing waits for what the program has not ordered.
TEST_F(RememberedGraphsTest, AnotherStreamHasAGraphOfItsOwn) {
  const std::vector<Step> here = {{0, 1}, {2, 3}}, there = {{4, 5}, {6, 7}};
  LaunchStream other;
  other.real = Stream();
  const CUstream blocked = stream_.real;
  Run(here);
  Run(here);
  const CUdeviceptr word = ZeroedMemory(4);
  ASSERT_EQ(driver_.cuStreamWaitValue32_v2(blocked, word, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  Run(here);
  for (int use = 0; use < 3; ++use) {
    Batch batch = BatchOf(there);
    for (PendingLaunch& launch : batch.launches) launch.stream = &other;
    ASSERT_EQ(Issue(batch), CUDA_SUCCESS);
    for (const Step& step : there) Expect(step);
  }
  EXPECT_EQ(counts().shapes_built, 2u);
  Await([&] { return HasEnded(other.real); });
  EXPECT_FALSE(HasEnded(blocked));
  ASSERT_EQ(driver_.cuMemsetD32Async(word, 1, 1, nullptr), CUDA_SUCCESS);
  ExpectMemory();
}

TEST_F(RememberedGraphsTest, WhatAGraphCannotHoldIsIssuedInOrder) {
  const std::vector<Step> steps = {{0, 1}, {2, 3}};
  const auto spoilt_by = [&](auto spoil) {
    for (int use = 0; use < 3; ++use) {
      Batch batch = BatchOf(steps);
      spoil(batch.launches[1]);
      int num_issued = 0;
      const auto count = [&](PendingLaunch&) { return ++num_issued, CUDA_SUCCESS; };
      EXPECT_EQ(graphs_->Issue(batch.shape, batch.launches, count), CUDA_SUCCESS);
      if (num_issued != 2) return false;
    }
    return true;
  };
  EXPECT_TRUE(spoilt_by([](PendingLaunch& launch) { launch.flags = shm::kLaunchCooperative; }));
  EXPECT_TRUE(spoilt_by([](PendingLaunch& launch) { launch.flags = shm::kLaunchExtra; }));
  EXPECT_TRUE(spoilt_by([](PendingLaunch& launch) { launch.attributes = {Clusters()}; }));
  EXPECT_TRUE(spoilt_by([](PendingLaunch& launch) { launch.is_captured = true; }));
  EXPECT_TRUE(spoilt_by([](PendingLaunch& launch) { launch.parameters.Resize(23); }));
  EXPECT_TRUE(spoilt_by([](PendingLaunch& launch) { launch.shape.grid[2] = 0; }));
  EXPECT_TRUE(spoilt_by([](PendingLaunch& launch) { launch.shape.block[0] = 0; }));
  LaunchStream other;
  EXPECT_TRUE(spoilt_by([&](PendingLaunch& launch) { launch.stream = &other; }));
  EXPECT_FALSE(spoilt_by([](PendingLaunch&) {}));
  EXPECT_FALSE(spoilt_by([](PendingLaunch& launch) { launch.flags = shm::kLaunchEx; }));
  EXPECT_FALSE(spoilt_by([](PendingLaunch& launch) { launch.attributes = {Programmatic()}; }));
}

// ---- Failures.

TEST_F(RememberedGraphsTest, ErrorsAreThoseOfTheLaunchesAndTheFirstIsReported) {
  const Step good{0, 1, 7}, later{4, 0, 9};
  const Step too_many_threads{.out = 2, .in = 3, .num_threads = 2048};
  const Step too_large_shared{.out = 5, .in = 3};
  for (int use = 0; use < 3; ++use) {
    Batch batch = BatchOf({good, too_many_threads, too_large_shared, later});
    batch.launches[2].shape.shared_bytes = 100 << 20;
    PendingLaunch alone = LaunchOf(too_many_threads);
    const CUresult expected = LaunchOriginal(alone);
    ASSERT_NE(expected, CUDA_SUCCESS);
    EXPECT_EQ(Issue(batch), expected) << use;
    Expect(good);
    Expect(later);
  }
  ExpectMemory();
  EXPECT_EQ(counts().shapes_refused, 1u) << "not tried again";
  EXPECT_EQ(counts().graph_launches, 0u);
}

TEST_F(RememberedGraphsTest, OfSeveralErrorsTheFirstIsReportedAndAllAreLaunched) {
  Batch batch = BatchOf({{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  const CUresult results[] = {CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS};
  size_t num_issued = 0;
  const auto issue = [&](PendingLaunch& launch) {
    EXPECT_EQ(&launch, &batch.launches[num_issued]);
    return results[num_issued++];
  };
  EXPECT_EQ(graphs_->Issue(batch.shape, batch.launches, issue), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(num_issued, 4u);
}

TEST_F(RememberedGraphsTest, ABadLaunchAmongGoodOnesOfAGraphHasItsError) {
  const std::vector<Step> steps = {{0, 1, 7}, {2, 3, 8}, {4, 0, 9}};
  Run(steps);
  Run(steps);
  Batch batch = BatchOf(steps);
  batch.launches[1].shape.block[0] = 2048;
  EXPECT_EQ(Issue(batch), CUDA_ERROR_INVALID_VALUE);
  Expect(steps[0]);
  Expect(steps[2]);
  Run(steps);
  ExpectMemory();
  EXPECT_EQ(counts().graph_launches, 1u);
  EXPECT_EQ(counts().shapes_refused, 1u);
}

TEST_F(RememberedGraphsTest, WhatTheDriverRefusesIsIssuedInOrderAndNotTriedAgain) {
  size_t first = 1;
  uint64_t num_refused = 0;
  for (CUresult* refused :
       {&WatchedDriver::refuse_instantiation, &WatchedDriver::refuse_update, &WatchedDriver::refuse_graph_launch}) {
    std::vector<Step> steps(++first, Step{0, 1});  // a shape of its own
    Run(steps);
    for (uint32_t use = 0; use < 4; ++use) {
      if (use == 0 || use == 1) *refused = CUDA_ERROR_OUT_OF_MEMORY;
      steps[0].addend = use;
      Run(steps);
      *refused = CUDA_SUCCESS;
    }
    EXPECT_EQ(counts().shapes_refused, ++num_refused);
    EXPECT_EQ(WatchedDriver::num_executables, 0);
    ExpectMemory();
  }
  EXPECT_TRUE(std::ranges::all_of(
      graphs_->Report(), [](const auto& report) { return report.is_refused && report.way == IssueWay::kInOrder; }));
}

TEST_F(RememberedGraphsTest, ALostContextIsReportedAndNothingIsIssuedBehindIt) {
  const std::vector<Step> steps = {{0, 1}, {2, 3}};
  Run(steps);
  WatchedDriver::refuse_graph_launch = CUDA_ERROR_ILLEGAL_ADDRESS;
  const int before = WatchedDriver::num_launches;
  EXPECT_EQ(Issue(steps), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(WatchedDriver::num_launches, before);
}

TEST_F(RememberedGraphsTest, ADriverWithoutGraphsIsNoTrouble) {
  driver_.cuGraphExecKernelNodeSetParams_v2 = nullptr;
  for (int use = 0; use < 4; ++use) Run({{0, 1}, {2, 3}});
  EXPECT_EQ(WatchedDriver::num_launches, 8);
  ExpectMemory();
}

TEST_F(RememberedGraphsTest, NothingIsLaunchedForAClientThatHasLeft) {
  const std::vector<Step> steps = {{0, 1}, {2, 3}};
  Run(steps);
  Run(steps);
  tenant_.Leave();
  EXPECT_EQ(Issue(steps), AdmittedDispatch::kCancelled);
  EXPECT_EQ(WatchedDriver::num_graph_launches, 1);
  EXPECT_EQ(WatchedDriver::num_launches, 2);
  ExpectMemory();
}

// ---- Bounds.

TEST_F(RememberedGraphsTest, ANewShapeTakesThePlaceOfAnOldOneThatNobodyUses) {
  graphs_.emplace(driver_, nullptr, RememberedGraphs::Limits{.most_graphs = 2, .most_shapes = 3, .stale_after = 10});
  const auto shape = [](size_t length) { return std::vector<Step>(length, Step{0, 1}); };
  const auto use = [&](size_t length, int times) {
    const uint64_t before = counts().graph_launches;
    for (int i = 0; i < times; ++i) Run(shape(length));
    return counts().graph_launches - before;
  };
  EXPECT_EQ(use(2, 3), 2u);
  EXPECT_EQ(use(3, 3), 2u);
  EXPECT_EQ(use(4, 3), 0u) << "both graphs were used just now";
  EXPECT_EQ(use(5, 3), 0u) << "not even remembered";
  EXPECT_EQ(use(2, 1), 1u);
  EXPECT_EQ(use(4, 12), 9u) << "once the second has not been used for ten batches";
  EXPECT_EQ(counts().graphs_evicted, 1u);
  EXPECT_EQ(use(2, 1), 1u) << "the first is in use";
  EXPECT_EQ(use(3, 1), 0u);
  EXPECT_EQ(use(5, 12), 4u) << "once the third has not been used for ten batches";
  EXPECT_EQ(counts().graphs_evicted, 2u);
  EXPECT_EQ(WatchedDriver::num_executables, 2);
  EXPECT_EQ(graphs_->Report().size(), 3u);
  ExpectMemory();
}

TEST_F(RememberedGraphsTest, ShapesThatTakeTurnsDoNotBuildTheirGraphsEachTime) {
  graphs_.emplace(driver_, nullptr, RememberedGraphs::Limits{.most_graphs = 3});
  for (int round = 0; round < 20; ++round) {
    for (size_t length = 2; length < 10; ++length) Run(std::vector<Step>(length, Step{0, 1}));
  }
  EXPECT_EQ(counts().shapes_built, 3u);
  EXPECT_EQ(counts().graph_launches, 3u * 19);
  ExpectMemory();
}

// Of one session: of its other devices and of twins, too.
TEST_F(RememberedGraphsTest, GraphsAreKeptWithinABudgetAndGivenBack) {
  NodeBudget budget(5);
  graphs_.emplace(driver_, nullptr, RememberedGraphs::Limits{.nodes = &budget});
  for (int i = 0; i < 3; ++i) Run({{0, 1}, {2, 3}, {4, 0}});
  for (int i = 0; i < 3; ++i) Run({{0, 1}, {2, 3}, {4, 5}});
  EXPECT_EQ(counts().shapes_built, 1u);
  EXPECT_EQ(counts().graph_launches, 2u);
  EXPECT_EQ(budget.num_left(), 2u);
  graphs_->ForgetAll();
  EXPECT_EQ(budget.num_left(), 5u);
  for (int i = 0; i < 2; ++i) Run({{0, 1}, {2, 3}, {4, 5}});
  EXPECT_EQ(counts().shapes_built, 2u);
  ExpectMemory();
  graphs_.reset();
  graphs_.emplace(driver_, nullptr);
}

// Another one may have its place in memory.
TEST_F(RememberedGraphsTest, AStreamThatIsGoneLeavesGraphsOfUse) {
  const std::vector<Step> steps = {{0, 1}, {2, 3}, {4, 0}};
  Run(steps);
  Run(steps);
  ExpectMemory();
  ASSERT_EQ(driver_.cuStreamDestroy_v2(stream_.real), CUDA_SUCCESS);
  stream_.real = Stream();
  Run(steps);
  EXPECT_EQ(counts().graph_launches, 2u);
  ExpectMemory();
}

TEST_F(RememberedGraphsTest, NoGraphIsLeftOfAKernelThatIsUnloaded) {
  LoadedImage image, library, module_of_library;
  module_of_library.library_image = &library;
  Kernel other = kernel_, borrowed = kernel_;
  kernel_.image = &image;
  other.image = &library;
  borrowed.image = &module_of_library;
  const auto use = [&](std::vector<Kernel*> kernels) {
    for (int i = 0; i < 2; ++i) {
      Batch batch = BatchOf(std::vector<Step>(kernels.size(), Step{0, 1}));
      for (size_t k = 0; k < kernels.size(); ++k) batch.launches[k].kernel = kernels[k];
      ASSERT_EQ(Issue(batch), CUDA_SUCCESS);
      for (size_t k = 0; k < kernels.size(); ++k) Expect({0, 1});
    }
  };
  use({&kernel_, &other});
  use({&kernel_, &kernel_, &kernel_});
  use({&kernel_, &kernel_, &kernel_, &borrowed});
  use({&kernel_, &kernel_, &kernel_, &kernel_, &kernel_});
  EXPECT_EQ(WatchedDriver::num_executables, 4);
  graphs_->Forget(other);
  EXPECT_EQ(WatchedDriver::num_executables, 3);
  graphs_->Forget(library);
  EXPECT_EQ(WatchedDriver::num_executables, 2);
  // The program loads another module, whose kernel happens to be where the old one was.
  graphs_->Forget(image);
  EXPECT_EQ(WatchedDriver::num_executables, 0);
  ExpectMemory();
  CUmodule module = nullptr;
  ASSERT_EQ(driver_.cuFuncGetModule(&module, kernel_.function), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuModuleUnload(module), CUDA_SUCCESS);
  kernel_.function = Function(kStep, "step");
  use({&kernel_, &kernel_, &kernel_});
  EXPECT_EQ(WatchedDriver::num_executables, 1);
  ExpectMemory();
}

// The parameters of a launch decide which kernel runs in its node, not what the shape was called.
TEST_F(RememberedGraphsTest, AnotherKernelUnderTheSameNumberIsTheOneThatRuns) {
  Kernel half = kernel_;
  std::string text = kStep;
  text.replace(text.find("%r5, 5,"), 7, "%r5, 3,");
  half.function = Function(text, "step");
  const std::vector<Step> steps = {{0, 1, 7}, {2, 3, 8}};
  Run(steps);
  Run(steps);
  Batch batch = BatchOf(steps);
  batch.launches[0].kernel = &half;
  ASSERT_EQ(Issue(batch), CUDA_SUCCESS);
  EXPECT_EQ(counts().graph_launches, 2u);
  for (uint32_t i = 0; i < kWords; ++i) expected_[0][i] = expected_[0][i] * 3 + expected_[1][i] + 7;
  Expect(steps[1]);
  ExpectMemory();
}

// ---- The choice. On a device whose clock moves as it is told.

class RememberedGraphsChoiceTest : public RememberedGraphsTest {
 protected:
  void SetUp() override {
    RememberedGraphsTest::SetUp();
    graphs_.emplace(driver_, &*completions_, RememberedGraphs::Limits{.uses_between_looks = kUses});
  }
  // Until a look has ended: what the two ways take.
  void Use(int64_t in_order_us, int64_t graph_us, size_t times) {
    WatchedDriver::launch_ns = in_order_us * 1000 / 2;  // of two launches
    WatchedDriver::graph_ns = graph_us * 1000;
    for (size_t i = 0; i < times; ++i) {
      Run({{0, 1}, {2, 3}});
      ASSERT_EQ(driver_.cuStreamSynchronize(stream_.real), CUDA_SUCCESS);
    }
  }
  uint64_t GraphsOf(size_t times) {
    const uint64_t before = counts().graph_launches;
    Use(100, 50, times);
    return counts().graph_launches - before;
  }
  static constexpr size_t kUses = 30;
  static constexpr size_t kSamples = 2 * WayChoice::kSamplesEach;
};

TEST_F(RememberedGraphsChoiceTest, FourPercentFasterIsNotEnough) {
  Use(100, 96, 1 + kSamples);
  EXPECT_EQ(counts().graph_launches, WayChoice::kSamplesEach);
  EXPECT_EQ(GraphsOf(10), 0u);
  EXPECT_EQ(counts().shapes_slower, 1u);
  EXPECT_EQ(WatchedDriver::num_executables, 0) << "nobody needs it for now";
  const auto report = graphs_->Report().at(0);
  EXPECT_EQ(report.way, IssueWay::kInOrder);
  EXPECT_NEAR(static_cast<double>(report.in_order.count()), 100'000, 10);
  EXPECT_NEAR(static_cast<double>(report.graph.count()), 96'000, 10);
  ExpectMemory();
}

TEST_F(RememberedGraphsChoiceTest, SixPercentIsAndWhatBecomesSlowerIsDropped) {
  Use(100, 94, 1 + kSamples);
  EXPECT_EQ(GraphsOf(kUses), kUses);
  EXPECT_EQ(graphs_->Report().at(0).way, IssueWay::kGraph);
  EXPECT_EQ(counts().shapes_built, 1u);
  const int num_records = WatchedDriver::num_records;
  EXPECT_EQ(num_records, 2 * static_cast<int>(kSamples)) << "no marks but those of the look";
  Use(100, 98, kSamples);
  EXPECT_EQ(GraphsOf(kUses), 0u);
  EXPECT_EQ(WatchedDriver::num_executables, 0);
  // And comes back.
  Use(100, 50, kSamples);
  EXPECT_EQ(GraphsOf(kUses), kUses);
  EXPECT_EQ(counts().shapes_built, 2u);
  ExpectMemory();
}

// What a shape is called is decided for it alone.
TEST_F(RememberedGraphsChoiceTest, EachShapeIsDecidedByItself) {
  Use(100, 50, 1 + kSamples);
  WatchedDriver::launch_ns = 100;
  for (size_t i = 0; i < 2 + kSamples; ++i) {
    Run({{0, 1}, {0, 1}, {0, 1}});
    ASSERT_EQ(driver_.cuStreamSynchronize(stream_.real), CUDA_SUCCESS);
  }
  EXPECT_EQ(GraphsOf(5), 5u);
  size_t num_graphs = 0;
  for (const auto& report : graphs_->Report()) {
    num_graphs += report.way == IssueWay::kGraph;
    EXPECT_EQ(report.way == IssueWay::kGraph, report.num_nodes == 2);
  }
  EXPECT_EQ(num_graphs, 1u);
}

// A stream that stands still has no times to tell.
TEST_F(RememberedGraphsChoiceTest, UndecidedWhileNothingHasEnded) {
  const CUdeviceptr word = ZeroedMemory(4);
  ASSERT_EQ(driver_.cuStreamWaitValue32_v2(stream_.real, word, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  WatchedDriver::launch_ns = 50'000;
  WatchedDriver::graph_ns = 10'000;
  for (size_t i = 0; i < 1 + kSamples + 20; ++i) Run({{0, 1}, {2, 3}});
  EXPECT_EQ(counts().graph_launches, WayChoice::kSamplesEach);
  ASSERT_EQ(driver_.cuMemsetD32Async(word, 1, 1, nullptr), CUDA_SUCCESS);
  ExpectMemory();
  EXPECT_EQ(GraphsOf(5), 5u);
}

TEST_F(RememberedGraphsChoiceTest, ForgottenInTheMiddleOfALook) {
  Use(100, 50, 1 + kSamples / 2);
  graphs_->ForgetAll();
  EXPECT_EQ(WatchedDriver::num_executables, 0);
  Use(100, 50, kSamples);
  EXPECT_EQ(GraphsOf(5), 5u);
  ExpectMemory();
}

TEST_F(RememberedGraphsChoiceTest, ASampleOfAFailedBatchDoesNotCount) {
  Use(100, 50, 1);
  for (int i = 0; i < 3; ++i) {
    Batch batch = BatchOf({{0, 1}, {2, 3}});
    ASSERT_EQ(graphs_->Issue(batch.shape, batch.launches, [](PendingLaunch&) { return CUDA_ERROR_INVALID_VALUE; }),
              i == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    if (i == 0) {
      Expect({0, 1});
      Expect({2, 3});
    }
  }
  EXPECT_EQ(WatchedDriver::num_records, 2 + 2) << "two begun, none ended";
  Use(100, 50, kSamples - 1);
  EXPECT_EQ(GraphsOf(5), 5u);
  ExpectMemory();
}

}  // namespace
}  // namespace tally::server
