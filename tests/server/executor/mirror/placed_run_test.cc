// Graphs on several software GPUs: the bits of one task after another, and the bytes that the plan says.
#include "server/executor/mirror/placed_run.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <map>
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
                       .command = work.commands[0].command,
                       .bytes = work.commands[0].bytes,
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
  static PlacedStep Run(uint32_t gpu, uint32_t task) {
    PlacedStep step;
    step.gpu = gpu;
    step.command.kind = MirrorCommandKind::kRun;
    step.command.task = task;
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

// A page has one place for each of so many commands: while one of them runs, others wait, but not for other GPUs.
TEST_F(PlacedRunTest, AFullPageKeepsNoOtherGpuWaiting) {
  world_.ShareHome();
  world_.allocation(0).Write({0});
  std::vector<PlacedStep> steps = {Waits(1)};
  for (uint32_t i = 0; i < 300; ++i) steps.push_back(Fill(1, 64, {}));
  // What the first waits for; it may start when there is no place left.
  steps.push_back(Fill(2, 0, {shm::kMirrorSlots - 1}));
  steps.back().command.allocation = 0;
  EXPECT_EQ(RunSteps(steps, world_.queues()), CUDA_SUCCESS);
  EXPECT_EQ(WordOfSecond(16), 0xababababu);
}

// A task of several commands ends as one: whatever comes behind it finds what the last one left.
TEST_F(PlacedRunTest, CommandsOfOneTaskFollowOneAnother) {
  world_.ShareHome();
  std::vector<PlacedStep> steps;
  for (uint32_t i = 0; i < 40; ++i) {
    const uint32_t gpu = 1 + i % 2;
    std::vector<StepCommand> commands;
    // Now and then more than a page holds.
    const uint32_t count = i % 20 == 7 ? 300 : 31;
    for (uint32_t k = 1; k <= count; ++k) {
      commands.push_back({Fill(gpu, 0, {}).command});
      commands.back().command.value = k == count ? i + 1 : 0xee;
    }
    ASSERT_EQ(DescribeTask(world_.mirror(static_cast<int>(gpu)), i, commands), CUDA_SUCCESS);
    steps.push_back(Run(gpu, i));
    if (i != 0) steps.back().after = {i - 1};
  }
  EXPECT_EQ(WordOfSecond(0), 0u) << "describing a task does nothing";
  ASSERT_TRUE(CheckSteps(steps, world_.queues().size()).ok());
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(RunSteps(steps, world_.queues()), CUDA_SUCCESS);
    EXPECT_EQ(WordOfSecond(0), 40 * 0x01010101u);
    EXPECT_EQ(RunSteps(std::vector{Fill(0, 0, {})}, world_.queues()), CUDA_SUCCESS);
  }
}

TEST_F(PlacedRunTest, ATaskThatCannotBeDescribedIsNone) {
  world_.ShareHome();
  const StepCommand fill{Fill(1, 0, {}).command}, unknown{Launch(1, 99, {0}).command};
  const auto refused = [&](uint32_t task) {
    return RunSteps(std::vector{Run(1, task)}, world_.queues()) == CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(DescribeTask(world_.mirror(1), 0, std::vector{fill, unknown, fill}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(refused(0));
  EXPECT_EQ(WordOfSecond(0), 0u);
  EXPECT_EQ(DescribeTask(world_.mirror(1), 0, std::vector{fill, fill}), CUDA_SUCCESS) << "the number is free";
  EXPECT_NE(DescribeTask(world_.mirror(1), 0, std::vector{fill}), CUDA_SUCCESS) << "now it is not";
  EXPECT_EQ(WordOfSecond(0), 0u) << "so what was to be its part was not carried out";
  EXPECT_TRUE(refused(1));
  EXPECT_EQ(RunSteps(std::vector{Run(1, 0)}, world_.queues()), CUDA_SUCCESS);
  EXPECT_EQ(WordOfSecond(0), 0xababababu);
  shm::MirrorCommand drop = MirrorWorld::Command(MirrorCommandKind::kDropTask);
  EXPECT_EQ(world_.mirror(1).Do(drop), CUDA_SUCCESS);
  EXPECT_EQ(world_.mirror(1).Do(drop), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(refused(0));
  EXPECT_EQ(DescribeTask(world_.mirror(1), 0, std::vector{fill, fill}), CUDA_SUCCESS) << "the number is free again";
  EXPECT_EQ(world_.mirror(1).Do(MirrorWorld::Command(MirrorCommandKind::kEndTask)), CUDA_ERROR_INVALID_VALUE);
}

// A GPU that runs `most` steps at a time, each until it has been looked at so often as `value` of its command says.
class ScriptedQueue final : public StepQueue {
 public:
  static constexpr Ticket kNone = ~Ticket{0};
  ScriptedQueue(size_t most, std::vector<uint32_t>* started, Ticket fails = kNone)
      : most_(most), started_(*started), fails_(fails) {}
  std::expected<Ticket, CUresult> Start(const PlacedStep& step) override {
    if (left_.size() == most_) return std::unexpected(CUDA_ERROR_NOT_READY);
    started_.push_back(static_cast<uint32_t>(step.command.address));
    left_[next_] = step.command.value;
    return next_++;
  }
  CUresult StateOf(Ticket ticket) override {
    if (left_.at(ticket)-- > 0) return CUDA_ERROR_NOT_READY;
    left_.erase(ticket);
    return ticket == fails_ ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
  }

 private:
  const size_t most_;
  std::vector<uint32_t>& started_;
  const Ticket fails_;
  std::map<Ticket, uint32_t> left_;
  Ticket next_ = 0;
};

// `address`: its place, for who looks at the order.
std::vector<PlacedStep> Scripted(std::vector<std::pair<std::vector<uint32_t>, uint32_t>> steps) {
  std::vector<PlacedStep> made;
  for (const auto& [after, looks] : steps) {
    PlacedStep& step = made.emplace_back();
    step.command.kind = MirrorCommandKind::kFill;
    step.command.address = made.size() - 1;
    step.command.value = looks;
    step.after = after;
  }
  return made;
}

TEST(RunStepsTest, WhoComesFirstInThePlanGoesFirst) {
  // 3 may start last, but goes before 4 and 5, which could have for a long time.
  const auto steps = Scripted({{{}, 5}, {{0}, 0}, {{}, 9}, {{1, 2}, 0}, {{}, 0}, {{}, 0}});
  std::vector<uint32_t> started;
  ScriptedQueue queue(1, &started);
  std::vector<StepQueue*> queues = {&queue};
  EXPECT_EQ(RunSteps(steps, queues), CUDA_SUCCESS);
  EXPECT_EQ(started, (std::vector<uint32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(RunStepsTest, CopiesDoNotWaitBehindTasksThatMayNotStart) {
  auto steps = Scripted({{{}, 100}, {{}, 100}, {{}, 0}});
  steps[2].command.kind = MirrorCommandKind::kFetch;
  // As RunningSteps has it: one task at a time, any copy.
  class OneTask final : public StepQueue {
   public:
    explicit OneTask(std::vector<uint32_t>* started) : tasks_(1, started), copies_(9, started) {}
    std::expected<Ticket, CUresult> Start(const PlacedStep& step) override {
      auto ticket = step.is_copy() ? copies_.Start(step) : tasks_.Start(step);
      return ticket ? std::expected<Ticket, CUresult>(2 * *ticket + (step.is_copy() ? 1 : 0)) : ticket;
    }
    CUresult StateOf(Ticket ticket) override {
      return ticket % 2 == 1 ? copies_.StateOf(ticket / 2) : tasks_.StateOf(ticket / 2);
    }

   private:
    ScriptedQueue tasks_, copies_;
  };
  std::vector<uint32_t> started;
  OneTask queue(&started);
  std::vector<StepQueue*> queues = {&queue};
  EXPECT_EQ(RunSteps(steps, queues), CUDA_SUCCESS);
  ASSERT_EQ(started.size(), 3u);
  EXPECT_EQ(started.back(), 1u);
}

TEST(RunStepsTest, AfterAnErrorNothingIsStarted) {
  // When 2 ends there is room for 3 on a GPU that is well, where 1 still runs.
  auto steps = Scripted({{{}, 2}, {{}, 9}, {{}, 4}, {{}, 0}});
  std::vector<uint32_t> started;
  ScriptedQueue fails(1, &started, 0), well(2, &started);
  for (size_t i = 1; i < steps.size(); ++i) steps[i].gpu = 1;
  std::vector<StepQueue*> queues = {&fails, &well};
  EXPECT_EQ(RunSteps(steps, queues), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(started, (std::vector<uint32_t>{0, 1, 2}));
}

TEST(RunStepsTest, TimesSayWhenEachBeganAndEnded) {
  auto steps = Scripted({{{}, 3}, {{0}, 2}, {{1}, 0}, {{2}, 1}});
  steps[2].command.kind = MirrorCommandKind::kNone;
  std::vector<uint32_t> started;
  ScriptedQueue queue(4, &started);
  std::vector<StepQueue*> queues = {&queue};
  std::vector<StepTimes> times;
  EXPECT_EQ(RunSteps(
                steps, queues, [] { return CUDA_SUCCESS; }, &times),
            CUDA_SUCCESS);
  ASSERT_EQ(times.size(), 4u);
  std::chrono::nanoseconds last{0};
  for (const StepTimes& step : times) {
    EXPECT_GE(step.begin, last);
    EXPECT_GT(step.end, step.begin);
    last = step.end;
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
  EXPECT_FALSE(refused(Run(1, 7)));
  EXPECT_TRUE(refused(Run(0, 7)));  // home has graphs
  PlacedStep graph = Fill(1, 0, {});
  graph.graph = reinterpret_cast<CUgraphExec>(this);
  EXPECT_TRUE(refused(graph));  // is home's
  PlacedStep wraps = Fill(1, ~uint64_t{0}, {});
  EXPECT_TRUE(refused(wraps));
}

}  // namespace
}  // namespace tally::server
