// Graphs on several software GPUs: the bits of one task after another, and the bytes that the plan says.
#include "server/executor/mirror/placed_run.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "scheduler/taskgraph/region_map.h"
#include "scheduler/taskgraph/task_plan.h"
#include "tests/server/executor/mirror/mirror_world.h"
#include "tests/server/executor/mirror/task_shapes.h"

namespace tally::server {
namespace {

using scheduler::GraphShape;
using scheduler::PlanMachine;
using scheduler::RegionMap;
using scheduler::TaskGraph;
using scheduler::TaskPlan;
using shm::MirrorCommandKind;

std::vector<uint32_t> RandomWords(std::mt19937& random) {
  std::vector<uint32_t> words(kMatrixBytes / sizeof(uint32_t));
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  return words;
}

class PlacedGraphs : public testing::TestWithParam<int> {
 protected:
  static PlanMachine Machine(int num_gpus) {
    return {.num_devices = static_cast<size_t>(num_gpus),
            .link_bytes_per_us = 100'000,
            .link_latency_ns = 1'000,
            .start_ns = 1'000};
  }
  void SetUp() override {
    world_.emplace(GetParam(), TaskImage(), TaskKernels());
    for (int i = 0; i < 2; ++i) world_->Allocate(kMatrixBytes);
  }
  // Puts random words into the matrices, runs the steps that `place` makes of a shape, holds the result against that of
  // one task after another.
  template <typename Place>
  void RunAllShapes(Place place) {
    std::mt19937 random(static_cast<uint32_t>(GetParam()));
    for (int shape = 0; shape < scheduler::kNumGraphShapes; ++shape) {
      SCOPED_TRACE(shape);
      const auto places = world_->places();
      const TileTasks tasks = MakeTileTasks(static_cast<GraphShape>(shape), random, places);
      ASSERT_EQ(tasks.tasks.size(), 120u);
      std::vector<std::vector<uint32_t>> expected;
      for (size_t k = 0; k < places.size(); ++k) {
        expected.push_back(RandomWords(random));
        world_->allocation(k).Write(expected.back());
      }
      RunInOrder(tasks, places, expected);
      const std::vector<PlacedStep> steps = place(tasks);
      ASSERT_TRUE(CheckSteps(steps, world_->queues().size()).ok());
      ASSERT_EQ(RunSteps(steps, world_->queues()), CUDA_SUCCESS);
      for (size_t k = 0; k < places.size(); ++k) EXPECT_TRUE(world_->allocation(k).Read() == expected[k]) << k;
    }
  }
  std::optional<MirrorWorld> world_;
};

// Known segments: each GPU has memory of its own, which the plan's moves fill.
TEST_P(PlacedGraphs, InMemoryOfTheirOwnMoveWhatThePlanSays) {
  world_->GiveOwn();
  uint64_t planned_bytes = 0, num_elsewhere = 0;
  RunAllShapes([&](const TileTasks& tasks) {
    const auto graph = TaskGraph::Make(tasks.tasks, TrueEdges(tasks.tasks));
    const auto regions = RegionMap::Make(tasks.tasks);
    EXPECT_TRUE(graph.has_value() && regions.has_value());
    const auto plan = TaskPlan::Make(*graph, *regions, Machine(GetParam()));
    EXPECT_TRUE(plan.has_value());
    auto steps = StepsOfPlan(*plan, *regions, tasks.work, world_->places());
    EXPECT_TRUE(steps.has_value());
    planned_bytes += plan->moved_bytes();
    EXPECT_EQ(CopiedBytes(*steps), plan->moved_bytes());
    for (const PlacedStep& step : *steps) num_elsewhere += step.gpu != 0;
    return *steps;
  });
  EXPECT_EQ(world_->copied_bytes(), planned_bytes);
  EXPECT_GT(num_elsewhere, 100u) << "everything ran at home: nothing was tested";
  EXPECT_GT(planned_bytes, 0u);
}

// Opaque kernels: home's memory at all GPUs, any placement, the edges alone keep the order.
TEST_P(PlacedGraphs, InHomesMemoryMoveNothing) {
  world_->ShareHome();
  std::mt19937 random(3);
  RunAllShapes([&](const TileTasks& tasks) {
    std::vector<PlacedStep> steps;
    for (const TaskWork& work : tasks.work) {
      steps.push_back({.gpu = static_cast<uint32_t>(random() % world_->queues().size()),
                       .command = work.command,
                       .bytes = work.bytes,
                       .after = {}});
    }
    for (const auto& [from, to] : TrueEdges(tasks.tasks)) steps[to].after.push_back(from);
    return steps;
  });
  EXPECT_EQ(world_->copied_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Gpus, PlacedGraphs, testing::Values(2, 4, 8));

class PlacedRunTest : public testing::Test {
 protected:
  PlacedRunTest() : world_(3, TaskImage(), TaskKernels()) {
    world_.Allocate(kMatrixBytes);
    world_.Allocate(kMatrixBytes);
  }
  PlacedStep Launch(uint32_t gpu, uint32_t function, std::vector<uint64_t> parameters) {
    PlacedStep step;
    step.gpu = gpu;
    step.command.kind = MirrorCommandKind::kLaunch;
    step.command.function = function;
    std::ranges::fill(step.command.grid, 1u);
    std::ranges::fill(step.command.block, 1u);
    const auto bytes = std::as_bytes(std::span(parameters));
    step.bytes.assign(bytes.begin(), bytes.end());
    return step;
  }
  // Spins until word 0 of the first matrix is not 0.
  PlacedStep Waits(uint32_t gpu) { return Launch(gpu, 1, {world_.places()[0].address}); }
  PlacedStep Fill(uint32_t gpu, uint64_t offset, std::vector<uint32_t> after) {
    PlacedStep step;
    step.gpu = gpu;
    step.command = MirrorWorld::Command(MirrorCommandKind::kFill, 1, offset);
    step.command.value = 0xab;
    step.command.row_bytes = 64;
    step.command.rows = 1;
    step.after = std::move(after);
    return step;
  }
  uint32_t WordOfSecond(size_t index) { return world_.allocation(1).Read()[index]; }

  MirrorWorld world_;
};

TEST_F(PlacedRunTest, AMirrorThatIsKilledInMidGraphIsOneErrorAndNoHang) {
  world_.ShareHome();
  world_.allocation(0).Write({0});
  // 1 waits for ever; behind it something at home; 2 goes on meanwhile.
  const std::vector<PlacedStep> steps = {Waits(1), Fill(0, 0, {0}), Fill(2, 64, {}), Fill(0, 128, {2})};
  std::thread killer([&] {
    UseHomeContext();
    while (WordOfSecond(32) != 0xabababab) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(world_.mirror(1).pid(), SIGKILL);
  });
  EXPECT_EQ(RunSteps(steps, world_.queues()), CUDA_ERROR_DEVICE_UNAVAILABLE);
  killer.join();
  EXPECT_EQ(WordOfSecond(0), 0u);  // what came behind it was not started
  EXPECT_EQ(WordOfSecond(16), 0xababababu);
  // It stays that way; what needs only the others still runs.
  EXPECT_EQ(world_.mirror(1).error(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(RunSteps(std::vector{Fill(1, 0, {})}, world_.queues()), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(RunSteps(std::vector{Fill(0, 256, {}), Fill(2, 320, {0})}, world_.queues()), CUDA_SUCCESS);
  EXPECT_EQ(WordOfSecond(80), 0xababababu);
}

TEST_F(PlacedRunTest, AFaultOfOneGpuIsCudasErrorAndLeavesTheOthers) {
  world_.ShareHome();
  const std::vector<PlacedStep> steps = {Launch(1, 1, {world_.places()[1].address + 2 * kMatrixBytes}), Fill(2, 0, {0}),
                                         Fill(2, 64, {})};
  EXPECT_EQ(RunSteps(steps, world_.queues()), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(WordOfSecond(0), 0u);
  EXPECT_EQ(RunSteps(std::vector{Fill(1, 0, {})}, world_.queues()), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(RunSteps(std::vector{Fill(2, 0, {}), Fill(0, 64, {})}, world_.queues()), CUDA_SUCCESS);
}

// Pages that nothing was fetched into are not there: a wrong segment faults instead of computing with old bytes.
TEST_F(PlacedRunTest, WhatWasNotMappedFaults) {
  shm::MirrorCommand own = MirrorWorld::Command(MirrorCommandKind::kMapOwn, 0, kGranule, kGranule);
  ASSERT_EQ(world_.mirror(1).Do(own), CUDA_SUCCESS);
  EXPECT_EQ(RunSteps(std::vector{Fill(0, 0, {})}, world_.queues()), CUDA_SUCCESS);
  EXPECT_EQ(RunSteps(std::vector{Waits(1)}, world_.queues()), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(PlacedRunTest, MoreStepsThanAPageHolds) {
  world_.ShareHome();
  std::vector<PlacedStep> steps;
  for (uint32_t i = 0; i < 1000; ++i) {
    steps.push_back(Fill(i % 3, i * 64, i < 3 ? std::vector<uint32_t>{} : std::vector<uint32_t>{i - 3, i - 2}));
  }
  EXPECT_EQ(RunSteps(steps, world_.queues()), CUDA_SUCCESS);
  const auto words = world_.allocation(1).Read();
  EXPECT_TRUE(std::all_of(words.begin(), words.begin() + 16'000, [](uint32_t word) { return word == 0xabababab; }));
}

// A step of several commands ends as one: whatever comes behind it finds what the last one left.
TEST_F(PlacedRunTest, CommandsOfOneStepFollowOneAnother) {
  world_.ShareHome();
  std::vector<PlacedStep> steps;
  for (uint32_t i = 0; i < 60; ++i) {
    PlacedStep step = Fill(i % 3, 0, i == 0 ? std::vector<uint32_t>{} : std::vector<uint32_t>{i - 1});
    // Now and then more than a page holds.
    const uint32_t num_more = i % 20 == 7 ? 300 : i % 7 == 3 ? 100 : 31;
    for (uint32_t k = 0; k < num_more; ++k) {
      StepCommand next{step.command, {}};
      next.command.value = k + 1 == num_more ? i + 1 : 0xee;
      step.more.push_back(next);
    }
    steps.push_back(std::move(step));
  }
  ASSERT_TRUE(CheckSteps(steps, world_.queues().size()).ok());
  EXPECT_EQ(RunSteps(steps, world_.queues()), CUDA_SUCCESS);
  EXPECT_EQ(WordOfSecond(0), 60 * 0x01010101u);
}

// A command in the middle that cannot be carried out is the step's error.
TEST_F(PlacedRunTest, ACommandInTheMiddleThatFailsIsSeen) {
  world_.ShareHome();
  for (const uint32_t gpu : {0u, 1u}) {
    PlacedStep step = Fill(gpu, 0, {});
    StepCommand unknown{Launch(gpu, 99, {0}).command, {}};
    for (const size_t num_behind : {1, 400}) {
      step.more.assign(1, unknown);
      step.more.insert(step.more.end(), num_behind, {step.command, {}});
      EXPECT_EQ(RunSteps(std::vector{step}, world_.queues()), CUDA_ERROR_INVALID_VALUE) << gpu << num_behind;
    }
  }
}

TEST_F(PlacedRunTest, WhoLooksMayEndIt) {
  world_.ShareHome();
  world_.allocation(0).Write({0});
  // Would wait for ever.
  int looks = 0;
  const auto result = RunSteps(std::vector{Waits(1), Fill(2, 0, {0})}, world_.queues(), [&] {
    if (++looks < 3) return CUDA_SUCCESS;
    for (const int gpu : {1, 2}) world_.mirror(gpu).End();
    return CUDA_ERROR_DEINITIALIZED;
  });
  EXPECT_EQ(result, CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(WordOfSecond(0), 0u);
  EXPECT_EQ(world_.mirror(2).error(), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

TEST_F(PlacedRunTest, StepsThatMakeNoSenseAreRefused) {
  const auto refused = [&](PlacedStep step) { return !CheckSteps(std::vector{std::move(step)}, 3).ok(); };
  EXPECT_FALSE(refused(Fill(2, 0, {})));
  EXPECT_TRUE(refused(Fill(3, 0, {})));   // no such GPU
  EXPECT_TRUE(refused(Fill(0, 0, {0})));  // behind itself
  PlacedStep copy = Fill(1, 0, {});
  copy.command.kind = MirrorCommandKind::kFetch;
  EXPECT_FALSE(refused(copy));
  copy.command.gpu = 1;
  EXPECT_TRUE(refused(copy));  // from itself
  copy.command.gpu = 3;
  EXPECT_TRUE(refused(copy));
  copy.command.gpu = 1;
  copy.gpu = 0;
  EXPECT_TRUE(refused(copy));  // home makes none
  PlacedStep mapping = Fill(1, 0, {});
  mapping.command.kind = MirrorCommandKind::kRelease;
  EXPECT_TRUE(refused(mapping));
  PlacedStep several = Fill(1, 0, {});
  several.more.assign(PlacedStep::kMostMore + 1, {several.command, {}});
  EXPECT_TRUE(refused(several));
  several.more.pop_back();
  EXPECT_FALSE(refused(several));
  several.more.back().command.kind = MirrorCommandKind::kFetch;
  EXPECT_TRUE(refused(several));
  several.more.back().command = {};
  EXPECT_TRUE(refused(several));
  PlacedStep graph = Fill(1, 0, {});
  graph.graph = reinterpret_cast<CUgraphExec>(this);
  EXPECT_TRUE(refused(graph));  // is home's
  PlacedStep wraps = Fill(1, ~uint64_t{0}, {});
  EXPECT_TRUE(refused(wraps));
}

}  // namespace
}  // namespace tally::server
