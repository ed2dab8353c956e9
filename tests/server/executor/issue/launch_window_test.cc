#include "server/executor/issue/launch_window.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "server/executor/dispatch/share_gate.h"
#include "server/executor/dispatch/trace.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/issue/launch_owner.h"
#include "server/executor/issue/launch_stream.h"
#include "server/executor/issue/preemptibility_meter.h"
#include "tests/server/executor/issue/launch_attributes.h"

namespace tally::server {
namespace {

using scheduler::Access;
using scheduler::AccessKind;
using scheduler::Box;
using std::chrono::microseconds;

constexpr HeldPlace kPlace{1, 0, 0};

class LaunchWindowTest : public testing::Test {
 protected:
  // One batch as it was issued: kernels by name, edges by place.
  struct Batch {
    std::vector<int> kernels;
    std::vector<std::set<int>> edges;
    std::vector<uint64_t> geometries;
  };

  void Open(bool holds = true) {
    window_.emplace(holds,
                    LaunchWindow::Means{
                        .accesses_of = [this](const PendingLaunch& launch) -> const LaunchAccesses& {
                          return accesses_[launch.kernel];
                        },
                        .issue =
                            [this](const scheduler::WindowShape& shape, std::span<PendingLaunch> launches,
                                   scheduler::WayDurations* durations) {
                              Batch& batch = batches_.emplace_back();
                              for (size_t i = 0; i < launches.size(); ++i) {
                                batch.kernels.push_back(NumberOf(launches[i].kernel));
                                batch.geometries.push_back(shape.nodes()[i].geometry);
                                std::set<int>& edges = batch.edges.emplace_back();
                                for (int j = 0; j < 64; ++j) {
                                  if ((shape.nodes()[i].edges >> j & 1) != 0) edges.insert(j);
                                }
                              }
                              if (!has_memory_) throw std::bad_alloc();
                              *durations = durations_;
                              return issue_result_;
                            },
                        .is_idle = [this] { return is_idle_; },
                        .most_launches = most_launches_,
                    },
                    figures_, clock_);
    window_->Enter(kPlace);
  }

  Kernel* KernelOf(int number) { return &kernels_[number]; }
  int NumberOf(const Kernel* kernel) const {
    for (const auto& [number, own] : kernels_) {
      if (&own == kernel) return number;
    }
    return -1;
  }
  void Touches(int kernel, std::vector<Access> accesses) { accesses_[KernelOf(kernel)].accesses = std::move(accesses); }
  static Access Reads(uint64_t address) { return {*Box::Range(address, 64), AccessKind::kRead}; }
  static Access Writes(uint64_t address) { return {*Box::Range(address, 64), AccessKind::kWrite}; }

  PendingLaunch Launch(int kernel) {
    PendingLaunch launch;
    launch.kernel = KernelOf(kernel);
    launch.shape = {.grid = {4, 1, 1}, .block = {32, 1, 1}, .shared_bytes = 0};
    launch.owner = &owner_;
    launch.stream = &stream_;
    return launch;
  }
  bool Take(PendingLaunch launch) { return window_->Take(launch, &failure_); }
  bool Take(int kernel) { return Take(Launch(kernel)); }
  uint64_t Barriers(const char* why) const {
    control::SessionFigures sum{};
    figures_.AddTo(sum);
    return sum.entries("window_barriers")[control::WindowBarrierOf(why)];
  }

  DriverTable driver_;
  Admission admission_;
  AdmissionTenant tenant_;
  bool keeps_kernels_ = false;
  std::atomic<bool> is_high_priority_{false};
  std::shared_ptr<RunsOwner> runs_owner_ = std::make_shared<RunsOwner>();
  PreemptibilityMeter preemptibility_{nullptr, nullptr};
  FigureCounters figures_;
  TraceSwitch trace_;
  std::unique_ptr<ShareGate> share_;
  LaunchOwner owner_{driver_,     admission_,      tenant_,  nullptr, keeps_kernels_, is_high_priority_,
                     runs_owner_, preemptibility_, figures_, trace_,  share_};
  LaunchStream stream_;
  // Moves on by `tick` whenever it is asked.
  struct : Clock {
    TimePoint Now() const override { return now += tick; }
    void Advance(std::chrono::nanoseconds by) { now += by; }
    mutable TimePoint now{};
    std::chrono::nanoseconds tick{0};
  } clock_;
  std::map<int, Kernel> kernels_;
  std::map<const Kernel*, LaunchAccesses> accesses_;
  scheduler::WayDurations durations_;
  CUresult issue_result_ = CUDA_SUCCESS;
  CUresult failure_ = CUDA_SUCCESS;
  bool is_idle_ = false;
  size_t most_launches_ = scheduler::kMostSlots;
  bool has_memory_ = true;
  std::vector<Batch> batches_;
  std::optional<LaunchWindow> window_;
};

TEST_F(LaunchWindowTest, WhatTouchesOtherMemoryHasNoEdges) {
  Open();
  Touches(0, {Writes(0)});
  Touches(1, {Writes(64)});
  Touches(2, {Reads(0), Writes(128)});
  Touches(3, {Reads(64), Reads(128), Writes(0)});
  for (int kernel = 0; kernel < 4; ++kernel) EXPECT_TRUE(Take(kernel));
  EXPECT_TRUE(window_->has_launches());
  EXPECT_TRUE(batches_.empty());
  EXPECT_EQ(window_->Issue(WindowEnd::kRequest), CUDA_SUCCESS);
  ASSERT_EQ(batches_.size(), 1u);
  EXPECT_EQ(batches_[0].kernels, (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(batches_[0].edges, (std::vector<std::set<int>>{{}, {}, {0}, {1, 2}}));
  EXPECT_FALSE(window_->has_launches());
}

// The edges of one batch say nothing of the one before: batches follow one another.
TEST_F(LaunchWindowTest, EachBatchBeginsAnew) {
  Open();
  Touches(0, {Writes(0)});
  Touches(1, {Reads(0)});
  Take(0);
  window_->Issue(WindowEnd::kRequest);
  Take(1);
  Take(0);
  window_->Issue(WindowEnd::kRequest);
  ASSERT_EQ(batches_.size(), 2u);
  EXPECT_EQ(batches_[1].edges, (std::vector<std::set<int>>{{}, {0}}));
}

TEST_F(LaunchWindowTest, WhatIsABarrierComesBehindWhatWasHeld) {
  Open();
  Touches(0, {Writes(0)});
  Take(0);
  accesses_[KernelOf(1)].barrier = "spin-loop";
  EXPECT_FALSE(Take(1));
  EXPECT_EQ(batches_.size(), 1u);
  EXPECT_FALSE(window_->has_launches());
  EXPECT_EQ(Barriers("spin-loop"), 1u);
}

TEST_F(LaunchWindowTest, WhatAGraphCannotSayIsNeverHeld) {
  Open();
  Touches(0, {Writes(0)});
  const auto refuses = [&](const char* why, auto change) {
    EXPECT_TRUE(Take(0));
    PendingLaunch launch = Launch(0);
    change(launch);
    const uint64_t before = Barriers(why);
    EXPECT_FALSE(Take(std::move(launch))) << why;
    EXPECT_FALSE(window_->has_launches()) << why;
    EXPECT_EQ(Barriers(why), before + 1) << why;
  };
  refuses("capture", [](PendingLaunch& launch) { launch.is_captured = true; });
  refuses("declared-capture", [](PendingLaunch& launch) {
    launch.is_captured = true;
    launch.flags = shm::kLaunchOpaque;
  });
  refuses("cooperative", [](PendingLaunch& launch) { launch.flags = shm::kLaunchCooperative; });
  refuses("attributes", [](PendingLaunch& launch) { launch.flags = shm::kLaunchExtra; });
  refuses("attributes", [](PendingLaunch& launch) { launch.attributes = {Programmatic(), Clusters()}; });
  // The driver refuses these, in program order.
  refuses("attributes", [](PendingLaunch& launch) { launch.shape.grid[1] = 0; });
  refuses("attributes", [](PendingLaunch& launch) { launch.shape.block[0] = 1 << 11; });
  refuses("attributes", [](PendingLaunch& launch) { launch.shape.shared_bytes = 1 << 24; });
}

// As XLA launches everything on a Hopper.
TEST_F(LaunchWindowTest, AProgrammaticLaunchIsHeld) {
  Open();
  Touches(0, {Writes(0)});
  PendingLaunch launch = Launch(0);
  launch.attributes = {Programmatic()};
  EXPECT_TRUE(Take(std::move(launch)));
  EXPECT_EQ(Barriers("attributes"), 0u);
}

TEST_F(LaunchWindowTest, AFullWindowIsIssued) {
  Open();
  for (int i = 0; i < 65; ++i) {
    Touches(i, {Writes(static_cast<uint64_t>(i) * 64)});
    EXPECT_TRUE(Take(i));
  }
  ASSERT_EQ(batches_.size(), 1u);
  EXPECT_EQ(batches_[0].kernels.size(), 64u);
  window_->Issue(WindowEnd::kRequest);
  EXPECT_EQ(batches_[1].kernels, std::vector{64});
}

TEST_F(LaunchWindowTest, AWindowMayBeToldToHoldFewer) {
  most_launches_ = 3;
  Open();
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(Take(i));
  ASSERT_EQ(batches_.size(), 2u);
  EXPECT_EQ(batches_[0].kernels.size(), 3u);
  EXPECT_EQ(batches_[1].kernels.size(), 3u);
}

// Steps of 40 launches that follow one another without a wait: else their graphs would come back only after 8 steps.
TEST_F(LaunchWindowTest, AWindowEndsWhereTheStepBeginsAgain) {
  Open();
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 40; ++i) EXPECT_TRUE(Take(i));
  }
  ASSERT_EQ(batches_.size(), 2u);
  EXPECT_EQ(batches_[0].kernels, batches_[1].kernels);
  EXPECT_EQ(batches_[0].kernels.front(), 0);
  EXPECT_EQ(batches_[0].kernels.size(), 40u);
}

// And if they have more than a window has room for.
TEST_F(LaunchWindowTest, LongStepsAreCutAtTheSamePlaces) {
  Open();
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 90; ++i) EXPECT_TRUE(Take(i));
  }
  ASSERT_EQ(batches_.size(), 5u);
  for (const size_t first : {0, 2, 4}) EXPECT_EQ(batches_[first].kernels, batches_[0].kernels);
  EXPECT_EQ(batches_[1].kernels, batches_[3].kernels);
}

TEST_F(LaunchWindowTest, AFrequentKernelDoesNotCutTheStepToPieces) {
  Open();
  for (int i = 0; i < 15; ++i) Take(i % 2);
  EXPECT_TRUE(batches_.empty());
}

// A program whose thread was slow once has not begun a step.
TEST_F(LaunchWindowTest, OnlyARequestBeginsAStep) {
  Open();
  for (int i = 0; i < 20; ++i) Take(i);
  window_->Issue(WindowEnd::kIdle);
  for (int i = 20; i < 40; ++i) Take(i);
  EXPECT_EQ(batches_.size(), 1u);
  Take(0);
  EXPECT_EQ(batches_.size(), 2u) << "0 still begins the step";
  window_->Issue(WindowEnd::kRequest);
  for (int i = 10; i < 40; ++i) Take(i);
  Take(0);
  EXPECT_EQ(batches_.size(), 3u) << "10 does now";
  Take(10);
  EXPECT_EQ(batches_.size(), 4u);
}

// A graph that was built for one cannot be used for another.
TEST_F(LaunchWindowTest, AnotherGeometryIsAnotherKind) {
  Open();
  const std::vector<std::function<void(PendingLaunch&)>> changes = {
      [](PendingLaunch&) {},
      [](PendingLaunch& launch) {
        launch.shape.block = {64, 1, 1};
      },
      [](PendingLaunch& launch) {
        launch.shape.block = {32, 2, 1};
      },
      [](PendingLaunch& launch) {
        launch.shape.block = {32, 1, 2};
      },
      [](PendingLaunch& launch) { launch.shape.shared_bytes = 16; },
      [&](PendingLaunch&) { stream_.device = 1; },
  };
  std::set<uint64_t> geometries;
  for (const auto& change : changes) {
    PendingLaunch launch = Launch(0);
    change(launch);
    Take(std::move(launch));
    window_->Issue(WindowEnd::kRequest);
    geometries.insert(batches_.back().geometries.front());
  }
  EXPECT_EQ(geometries.size(), changes.size());
  PendingLaunch other_grid = Launch(0);
  stream_.device = 0;
  other_grid.shape.grid = {8, 8, 8};
  Take(std::move(other_grid));
  window_->Issue(WindowEnd::kRequest);
  EXPECT_TRUE(geometries.contains(batches_.back().geometries.front())) << "grids are parameters of a graph";
}

TEST_F(LaunchWindowTest, TheFirstFailureIsTold) {
  Open();
  issue_result_ = CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < 64; ++i) Take(i);
  EXPECT_EQ(failure_, CUDA_SUCCESS);
  EXPECT_TRUE(Take(64));
  EXPECT_EQ(failure_, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(window_->Issue(WindowEnd::kIdle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(window_->Issue(WindowEnd::kIdle), CUDA_SUCCESS) << "nothing is held any more";
}

// Some of them may have been issued by then.
TEST_F(LaunchWindowTest, WithoutMemoryNothingIsIssuedTwice) {
  Open();
  Take(0);
  has_memory_ = false;
  EXPECT_EQ(window_->Issue(WindowEnd::kRequest), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(window_->has_launches());
  has_memory_ = true;
  EXPECT_EQ(window_->Issue(WindowEnd::kRequest), CUDA_SUCCESS);
  EXPECT_EQ(batches_.size(), 1u);
}

// The program is slower than the GPU: kernels that wait for one another on the host could have run by then.
TEST_F(LaunchWindowTest, NothingIsHeldWhileHoldingDoesNotPay) {
  Open();
  is_idle_ = true;
  durations_ = {.in_order = microseconds(100), .as_issued = microseconds(50)};
  const auto step = [&] {
    int num_held = 0;
    for (int i = 0; i < 10; ++i) {
      num_held += Take(i) ? 1 : 0;
      clock_.Advance(microseconds(20));
    }
    window_->Issue(WindowEnd::kRequest);
    return num_held;
  };
  for (int i = 0; i < 16; ++i) EXPECT_EQ(step(), 10) << i;
  EXPECT_EQ(step(), 0);
  int num_steps = 1;
  while (num_steps < 10000 && step() == 0) ++num_steps;
  EXPECT_GE(num_steps, 100) << "1024 launches pass";
  EXPECT_LE(num_steps, 104);
  for (int i = 0; i < 15; ++i) step();
  num_steps = 0;
  while (num_steps < 10000 && step() == 0) ++num_steps;
  EXPECT_GE(num_steps, 200) << "and twice as many, as it did not pay again";
}

// One kernel now and then: it would have begun at once.
TEST_F(LaunchWindowTest, SingleLaunchesAreNotMadeToWait) {
  Open();
  is_idle_ = true;
  int num_held = 0;
  for (int i = 0; i < 100; ++i) {
    num_held += Take(0) ? 1 : 0;
    clock_.Advance(LaunchWindow::kPatience);
    window_->Issue(WindowEnd::kIdle);
  }
  EXPECT_EQ(num_held, 16);
  // But if the GPU was busy anyway, or the program asked at once, it cost nothing.
  Open();
  is_idle_ = false;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(Take(0));
    clock_.Advance(LaunchWindow::kPatience);
    window_->Issue(WindowEnd::kIdle);
  }
  is_idle_ = true;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(Take(0));
    window_->Issue(WindowEnd::kRequest);
  }
}

// One kernel and a wait, again and again: no other ever comes, though the channel is never idle.
TEST_F(LaunchWindowTest, WhoWaitsForEachLaunchIsLeftAlone) {
  Open();
  is_idle_ = true;
  int num_held = 0;
  for (int i = 0; i < 100; ++i) {
    num_held += Take(0) ? 1 : 0;
    clock_.Advance(microseconds(1));
    window_->Issue(WindowEnd::kRequest);
    clock_.Advance(microseconds(20));
  }
  EXPECT_EQ(num_held, 16);
}

// A slow program whose shapes never come again is never measured, and the GPU would wait for it forever.
TEST_F(LaunchWindowTest, WhatIsNotMeasuredIsNotHeldWhileTheGpuMostlyWaits) {
  Open();
  is_idle_ = true;
  const auto step = [&](microseconds apart, microseconds rest) {
    int num_held = 0;
    for (int i = 0; i < 10; ++i) {
      num_held += Take(i) ? 1 : 0;
      clock_.Advance(apart);
    }
    window_->Issue(WindowEnd::kRequest);
    clock_.Advance(rest);
    return num_held;
  };
  for (int i = 0; i < 100; ++i) ASSERT_EQ(step(microseconds(1), microseconds(200)), 10) << "soon it will be";
  for (int i = 0; i < 17; ++i) step(microseconds(14), microseconds(20));
  EXPECT_EQ(step(microseconds(14), microseconds(20)), 0);
  // A busy GPU has lost nothing by it.
  Open();
  is_idle_ = false;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(step(microseconds(14), microseconds(20)), 10);
}

// However much it has paid before, or has not.
TEST_F(LaunchWindowTest, EachJudgementIsOfItsOwnWindows) {
  Open();
  const auto judge = [&](bool pays) {
    is_idle_ = !pays;
    durations_ = {.in_order = microseconds(100), .as_issued = microseconds(pays ? 10 : 50)};
    for (int i = 0; i < 16; ++i) {
      for (int kernel = 0; kernel < 10; ++kernel) {
        EXPECT_TRUE(Take(kernel));
        clock_.Advance(microseconds(20));
      }
      window_->Issue(WindowEnd::kRequest);
    }
  };
  const auto rest = [&] {
    int num_passed = 0;
    while (num_passed < 10000 && !Take(0)) ++num_passed;
    durations_ = {};
    window_->Issue(WindowEnd::kRequest);
    return num_passed;
  };
  judge(true);
  judge(false);
  EXPECT_EQ(rest(), 1024);
  EXPECT_EQ(Barriers("no-gain"), 1024u) << "who looks has to see that they were not held";
  for (int i = 0; i < 2; ++i) {
    judge(true);
    judge(false);
    EXPECT_EQ(rest(), 1024) << "it had paid in between";
  }
}

// The window that tells so was full: the launch that found it so must not be held where those behind it are not.
TEST_F(LaunchWindowTest, WhatIsNotHeldNeverOvertakes) {
  Open();
  is_idle_ = true;
  durations_ = {.in_order = microseconds(10), .as_issued = microseconds(10)};
  bool was_held = true;
  for (int i = 0; i < 64 * 20; ++i) {
    const bool is_held = Take(i % 64);
    EXPECT_TRUE(is_held || !window_->has_launches()) << i;
    was_held = is_held;
    clock_.Advance(microseconds(1));
  }
  EXPECT_FALSE(was_held);
}

// It was still busy when the first of them came, and soon was not: each batch comes before the last one is done.
TEST_F(LaunchWindowTest, AGpuThatGoesIdleMeanwhileHasWaited) {
  Open();
  durations_ = {.in_order = microseconds(100), .as_issued = microseconds(50)};
  const auto step = [&](microseconds apart) {
    int num_held = 0;
    for (int i = 0; i < 10; ++i) {
      num_held += Take(i) ? 1 : 0;
      clock_.Advance(apart);
      is_idle_ = i >= 8;
    }
    window_->Issue(WindowEnd::kFull);
    is_idle_ = false;
    return num_held;
  };
  // The GPU takes 50 us for a batch that comes in 60, or in order 100: still a gain.
  for (int i = 0; i < 100; ++i) ASSERT_EQ(step(microseconds(6)), 10);
  for (int i = 0; i < 17; ++i) step(microseconds(20));
  EXPECT_EQ(step(microseconds(20)), 0);
}

TEST_F(LaunchWindowTest, HoldingPaysWhileTheGpuIsBusyOrTheProgramIsQuick) {
  Open();
  durations_ = {.in_order = microseconds(100), .as_issued = microseconds(50)};
  const auto step = [&](microseconds pause) {
    int num_held = 0;
    for (int i = 0; i < 10; ++i) {
      num_held += Take(i) ? 1 : 0;
      clock_.Advance(pause);
    }
    window_->Issue(WindowEnd::kRequest);
    return num_held;
  };
  for (int i = 0; i < 100; ++i) ASSERT_EQ(step(microseconds(20)), 10);
  is_idle_ = true;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(step(microseconds(1)), 10);
}

TEST_F(LaunchWindowTest, AShadowHoldsNothingAndCounts) {
  Open(/*holds=*/false);
  Touches(0, {Writes(0)});
  Touches(1, {Writes(64)});
  Touches(2, {Reads(0), Reads(64), Writes(128)});
  // Memory that is used again: read after write alone would let the second round begin at once.
  for (int round = 0; round < 2; ++round) {
    for (int kernel = 0; kernel < 3; ++kernel) EXPECT_FALSE(Take(kernel));
  }
  window_->Issue(WindowEnd::kRequest);
  EXPECT_TRUE(batches_.empty());
  EXPECT_EQ(figures_["window_work"], 6u);
  EXPECT_EQ(figures_["window_chain"], 4u);
  EXPECT_EQ(figures_["window_chain_read_after_write"], 2u);
  EXPECT_EQ(figures_["window_compared"], 6u);
  EXPECT_EQ(figures_["window_held"], 0u);
}

TEST_F(LaunchWindowTest, AShadowCountsWhatItDoesNotCompare) {
  Open(/*holds=*/false);
  clock_.tick = microseconds(1);
  Touches(0, {Writes(0)});
  accesses_[KernelOf(1)].barrier = "volatile";
  for (int step = 0; step < 100; ++step) {
    for (int i = 0; i < 100; ++i) Take(i % 2);
    window_->Issue(WindowEnd::kRequest);
  }
  EXPECT_EQ(figures_["window_compared"], 300u);
  EXPECT_EQ(figures_["window_work"], 10'000u);
  EXPECT_EQ(figures_["window_chain"], 10'000u);
  EXPECT_EQ(Barriers("volatile"), 5000u);
  control::SessionFigures sum{};
  figures_.AddTo(sum);
  EXPECT_EQ(sum.entries("window_classes")[control::kWindowClassNone] + sum.entries("window_classes")[0], 5000u);
}

}  // namespace
}  // namespace tally::server
