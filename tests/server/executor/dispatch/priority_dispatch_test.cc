#include "server/executor/dispatch/priority_dispatch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "scheduler/tuning.h"
#include "server/executor/dispatch/run_ahead.h"
#include "tests/server/executor/dispatch/scripted_gpu.h"
#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

// Stands still until the test moves it; any thread may read it.
class TestClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(std::chrono::nanoseconds(now_ns_.load())); }
  void Advance(std::chrono::nanoseconds by) { now_ns_ += by.count(); }

 private:
  std::atomic<int64_t> now_ns_{1'000'000'000};
};

class PriorityDispatchTest : public testing::Test {
 protected:
  PriorityDispatchTest() { ScriptedGpu::Reset(); }
  std::unique_ptr<DispatchGate> NewExecutorsGate(std::chrono::nanoseconds starvation_bound = {}) {
    auto page = ActivityPage::Open(directory_ + "/activity");
    EXPECT_TRUE(page) << page.error().ToString();
    return CreatePriorityDispatch(table_, std::move(*page), starvation_bound, clock_);
  }

  static constexpr DispatchOf kHigh{.device = 0, .is_high_priority = true};
  static constexpr DispatchOf kBestEffort{.device = 0, .is_high_priority = false};
  static DispatchOf Short(int microseconds, uintptr_t stream = 1) {
    return {.is_short = true,
            .stream = reinterpret_cast<CUstream>(stream),
            .kind = {.first_guess = std::chrono::microseconds(microseconds)}};
  }
  // A gate beside a high-priority executor that has nothing to do at present.
  std::unique_ptr<DispatchGate> GateBesideHighPriority() {
    high_ = NewExecutorsGate();
    high_->BeforeDispatch(kHigh);
    high_->AfterDispatch(kHigh, {});
    auto gate = NewExecutorsGate();
    while (gate->watch()->IsClosed(0)) std::this_thread::sleep_for(std::chrono::microseconds(100));
    return gate;
  }
  // Does it on another thread, while time passes in steps of that length, each for longer than a waiting thread sleeps.
  template <typename Work>
  void WhileTimePasses(std::chrono::milliseconds step, Work&& work) {
    std::atomic<bool> is_done{false};
    std::thread worker([&] {
      work();
      is_done = true;
    });
    while (!is_done) {
      clock_.Advance(step);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    worker.join();
  }
  // Launches until the gate keeps one back, at most `most`; that one is let go at the end. Time stands still meanwhile:
  // nothing goes because it has waited for long. A launch that asks the GPU so often is kept, not slow.
  int NumAdmitted(DispatchGate& gate, const DispatchOf& of, int most) {
    ScriptedGpu::Stop();
    std::atomic<int> num_admitted{0};
    std::thread launcher([&] {
      for (int i = 0; i < most; ++i) {
        const DispatchPass pass = gate.BeforeDispatch(of);
        ++num_admitted;
        gate.AfterDispatch(of, pass);
      }
    });
    int num = -1;
    for (uint64_t num_queries = 0; num != num_admitted && num != most;) {
      num = num_admitted;
      num_queries = ScriptedGpu::NumQueries();
      while (num == num_admitted && num != most && ScriptedGpu::NumQueries() < num_queries + 100)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    ScriptedGpu::Go();
    launcher.join();
    EXPECT_EQ(num_admitted, most);
    return num;
  }

  std::unique_ptr<DispatchGate> high_;
  const DriverTable table_ = ScriptedGpu::Table();
  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
  TestClock clock_;
};

TEST_F(PriorityDispatchTest, BestEffortAloneIsNeverHeldBack) {
  auto gate = NewExecutorsGate();
  ScriptedGpu::Stop();
  for (int launch = 0; launch < 1000; ++launch) {
    gate->BeforeDispatch(kBestEffort);
    gate->AfterDispatch(kBestEffort, {});
  }
  ScriptedGpu::Go();
}

TEST_F(PriorityDispatchTest, BestEffortWaitsForAnotherExecutorsHighPriorityWork) {
  auto high = NewExecutorsGate();
  auto best_effort = NewExecutorsGate();
  ScriptedGpu::Stop();
  high->BeforeDispatch(kHigh);
  high->AfterDispatch(kHigh, {});
  std::atomic<bool> dispatched{false};
  std::thread launcher([&] {
    best_effort->BeforeDispatch(kBestEffort);
    dispatched = true;
    best_effort->AfterDispatch(kBestEffort, {});
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(dispatched) << "high-priority work is still on the GPU";
  ScriptedGpu::Go();
  launcher.join();
  EXPECT_TRUE(dispatched);
}

TEST_F(PriorityDispatchTest, LeftToTimeSlicesNobodyWaits) {
  auto high = NewExecutorsGate();
  auto best_effort = NewExecutorsGate();
  high->LeaveToTimeSlices(true);
  best_effort->LeaveToTimeSlices(true);
  ScriptedGpu::Stop();
  high->BeforeDispatch(kHigh);
  high->AfterDispatch(kHigh, {});
  EXPECT_TRUE(best_effort->watch()->IsClosed(0)) << "high-priority work is announced all the same";
  EXPECT_FALSE(best_effort->holds_copies());
  for (int launch = 0; launch < 1000; ++launch) {
    const DispatchPass pass = best_effort->BeforeDispatch(kBestEffort);
    EXPECT_TRUE(pass.may_go);
    best_effort->AfterDispatch(kBestEffort, pass);
  }
  ScriptedGpu::Go();
}

TEST_F(PriorityDispatchTest, WhoWaitsIsLetGoWhenItIsLeftToTimeSlicesAndTheNextOneWaitsAgain) {
  auto high = NewExecutorsGate();
  auto best_effort = NewExecutorsGate();
  ScriptedGpu::Stop();
  high->BeforeDispatch(kHigh);
  high->AfterDispatch(kHigh, {});
  std::atomic<int> num_dispatched{0};
  std::thread launcher([&] {
    for (int launch = 0; launch < 2; ++launch) {
      const DispatchPass pass = best_effort->BeforeDispatch(kBestEffort);
      best_effort->LeaveToTimeSlices(false);
      ++num_dispatched;
      best_effort->AfterDispatch(kBestEffort, pass);
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(num_dispatched, 0);
  best_effort->LeaveToTimeSlices(true);
  while (num_dispatched == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(num_dispatched, 1) << "high-priority work is still on the GPU";
  EXPECT_TRUE(best_effort->holds_copies());
  ScriptedGpu::Go();
  launcher.join();
}

TEST_F(PriorityDispatchTest, BothClassesInOneExecutorKeepTheRule) {
  auto gate = NewExecutorsGate();
  ScriptedGpu::Stop();
  gate->BeforeDispatch(kHigh);
  gate->AfterDispatch(kHigh, {});
  gate->BeforeDispatch(kHigh);  // high-priority work never waits
  gate->AfterDispatch(kHigh, {});
  std::thread launcher([&] {
    gate->BeforeDispatch(kBestEffort);
    gate->AfterDispatch(kBestEffort, {});
  });
  ScriptedGpu::Go();
  launcher.join();
}

TEST_F(PriorityDispatchTest, WithAStarvationBoundOneLaunchGoesPerBound) {
  constexpr auto kBound = std::chrono::milliseconds(400);
  auto high = NewExecutorsGate();
  auto best_effort = NewExecutorsGate(kBound);
  ScriptedGpu::Stop();
  high->BeforeDispatch(kHigh);
  high->AfterDispatch(kHigh, {});
  const TimePoint began = clock_.Now();
  std::atomic<int> num_running{2};
  std::vector<std::thread> programs;
  for (int i = 0; i < 2; ++i) {
    programs.emplace_back([&] {
      for (int launch = 0; launch < 2; ++launch) {
        const DispatchPass pass = best_effort->BeforeDispatch(kBestEffort);
        EXPECT_TRUE(pass.may_go);
        best_effort->AfterDispatch(kBestEffort, pass);
      }
      --num_running;
    });
  }
  while (num_running > 0) {
    clock_.Advance(kBound / 40);  // it looks every 10 ms
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::thread& program : programs) program.join();
  EXPECT_GE(clock_.Now() - began, 4 * kBound) << "high-priority work was there all the time";
  ScriptedGpu::Go();
}

TEST_F(PriorityDispatchTest, ShutdownEndsTheWait) {
  auto high = NewExecutorsGate();
  auto best_effort = NewExecutorsGate();
  ScriptedGpu::Stop();
  high->BeforeDispatch(kHigh);
  high->AfterDispatch(kHigh, {});
  std::thread launcher([&] {
    best_effort->BeforeDispatch(kBestEffort);
    best_effort->AfterDispatch(kBestEffort, {});
  });
  best_effort->Open();
  launcher.join();
  ScriptedGpu::Go();
}

TEST_F(PriorityDispatchTest, AKernelThatWaitsForALaterOneIsNotWaitedForForever) {
  auto high = NewExecutorsGate();
  auto best_effort = NewExecutorsGate();
  high->BeforeDispatch(kHigh);
  high->AfterDispatch(kHigh, {});
  best_effort->BeforeDispatch(kBestEffort);
  best_effort->AfterDispatch(kBestEffort, {});
  ScriptedGpu::Stop();  // from here on nothing completes: what is in flight waits for what is yet to be launched
  WhileTimePasses(std::chrono::milliseconds(50), [&] {
    for (int launch = 0; launch < 12; ++launch) {
      best_effort->BeforeDispatch(kBestEffort);
      best_effort->AfterDispatch(kBestEffort, {});
    }
  });
  ScriptedGpu::Go();
}

TEST_F(PriorityDispatchTest, ShortLaunchesInFlightDrainWithinTheThreshold) {
  auto gate = GateBesideHighPriority();
  gate->Tune({.turnaround_threshold = std::chrono::microseconds(30) + scheduler::kGiveBackOverhead});
  EXPECT_EQ(NumAdmitted(*gate, Short(10), 20), 3);
  EXPECT_EQ(NumAdmitted(*gate, Short(16), 20), 1);
  EXPECT_EQ(NumAdmitted(*gate, Short(15), 20), 2);
  EXPECT_EQ(NumAdmitted(*gate, Short(500), 20), 1) << "longer than the threshold: one at a time";
  EXPECT_EQ(NumAdmitted(*gate, Short(0), 20), 1) << "not known: one at a time";
  gate->Tune({.turnaround_threshold = std::chrono::microseconds(100) + scheduler::kGiveBackOverhead});
  EXPECT_EQ(NumAdmitted(*gate, Short(10), 20), 10);
}

TEST_F(PriorityDispatchTest, ShortLaunchesOfSeveralStreamsDrainTogether) {
  auto gate = GateBesideHighPriority();
  gate->Tune({.turnaround_threshold = std::chrono::microseconds(30) + scheduler::kGiveBackOverhead});
  ScriptedGpu::Stop();
  gate->AfterDispatch(Short(10, 7), gate->BeforeDispatch(Short(10, 7)));
  EXPECT_EQ(NumAdmitted(*gate, Short(10, 8), 20), 2);
}

TEST_F(PriorityDispatchTest, OthersKeepTheirOwnRuleBesideShortOnes) {
  auto gate = GateBesideHighPriority();
  ScriptedGpu::Stop();
  gate->AfterDispatch(Short(10), gate->BeforeDispatch(Short(10)));
  EXPECT_EQ(NumAdmitted(*gate, kBestEffort, 5), 1) << "a look-ahead begins with one";
}

// As GatedDispatch makes them: the guess says whether they are short.
TEST_F(PriorityDispatchTest, WhatCanBeSuspendedIsNotBoundedButStillStaysBack) {
  auto gate = GateBesideHighPriority();
  gate->ExpectSuspension(1, true);  // another device
  EXPECT_LT(NumAdmitted(*gate, kBestEffort, 100), 100);
  gate->ExpectSuspension(0, true);
  EXPECT_EQ(NumAdmitted(*gate, kBestEffort, 1000), 1000);
  high_->BeforeDispatch(kHigh);
  EXPECT_TRUE(gate->watch()->IsClosed(0));
  std::atomic<bool> has_gone{false};
  std::thread launcher([&] {
    gate->AfterDispatch(kBestEffort, gate->BeforeDispatch(kBestEffort));
    has_gone = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(has_gone);
  high_->AfterDispatch(kHigh, {});
  launcher.join();
}

TEST_F(PriorityDispatchTest, WhatCanBeSuspendedDoesNotFillTheDriversRing) {
  auto gate = GateBesideHighPriority();
  gate->ExpectSuspension(0, true);
  const auto tenant = gate->AddTenant({}), another = gate->AddTenant({});
  const DispatchOf of{.device = 0, .stream = reinterpret_cast<CUstream>(1), .tenant = tenant.get()};
  constexpr int kMost = RunAhead::kLaunchesPerMark * RunAhead::kMostMarks;
  EXPECT_EQ(NumAdmitted(*gate, of, kMost + RunAhead::kLaunchesPerMark), kMost);
  const DispatchOf of_another{.device = 0, .stream = reinterpret_cast<CUstream>(2), .tenant = another.get()};
  EXPECT_EQ(NumAdmitted(*gate, of_another, kMost), kMost) << "each for itself";
  ScriptedGpu::Stop();
  for (int launch = 0; launch < kMost; ++launch) gate->AfterDispatch(of, gate->BeforeDispatch(of));
  std::thread leaving([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    tenant->Leave();
  });
  EXPECT_FALSE(gate->BeforeDispatch(of).may_go);
  leaving.join();
  ScriptedGpu::Go();
  tenant->End();
}

TEST_F(PriorityDispatchTest, CopiesAreHeldOnlyBesideAHighPriorityExecutor) {
  auto alone = NewExecutorsGate();
  EXPECT_FALSE(alone->holds_copies());
  auto gate = GateBesideHighPriority();
  EXPECT_TRUE(gate->holds_copies());
  EXPECT_TRUE(alone->holds_copies()) << "one has come since";
  high_.reset();
  EXPECT_FALSE(gate->holds_copies());
}

TEST_F(PriorityDispatchTest, SmallCopiesAreShortAndLargeOnesAreAsFewAsDrainQuickly) {
  auto gate = GateBesideHighPriority();
  gate->Tune({.turnaround_threshold = std::chrono::microseconds(30) + scheduler::kGiveBackOverhead});
  const auto copy = [](int microseconds) {
    DispatchOf of = Short(microseconds);
    of.is_short = false;
    return of;
  };
  EXPECT_EQ(NumAdmitted(*gate, copy(10), 20), 3);
  EXPECT_EQ(NumAdmitted(*gate, copy(300), 5), 1) << "a look-ahead begins with one";
  DispatchOf of_a_patient_program = copy(300);
  of_a_patient_program.turnaround = std::chrono::milliseconds(1);
  EXPECT_EQ(NumAdmitted(*gate, of_a_patient_program, 20), 3);
}

TEST_F(PriorityDispatchTest, WhatGoesBecauseNothingEndsSaysSo) {
  auto gate = GateBesideHighPriority();
  ScriptedGpu::Stop();
  for (const bool is_forced : {false, true})
    WhileTimePasses(std::chrono::milliseconds(50), [&] {
      const DispatchPass pass = gate->BeforeDispatch(kBestEffort);
      EXPECT_EQ(pass.is_forced, is_forced);
      gate->AfterDispatch(kBestEffort, pass);
    });
  ScriptedGpu::Go();
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(gate->BeforeDispatch(kBestEffort).is_forced);
}

TEST_F(PriorityDispatchTest, AClientThatHasLeftLaunchesNothingMore) {
  auto gate = GateBesideHighPriority();
  const auto tenant = gate->AddTenant({});
  DispatchOf of = kBestEffort;
  of.tenant = tenant.get();
  ScriptedGpu::Stop();
  gate->AfterDispatch(of, gate->BeforeDispatch(of));
  std::thread held([&] {
    for (;;) {  // time stands still: for ever, if it were not for Leave()
      const DispatchPass pass = gate->BeforeDispatch(of);
      if (!pass.may_go) return;
      gate->AfterDispatch(of, pass);
    }
  });
  tenant->Leave();
  held.join();
  ScriptedGpu::Go();
}

TEST_F(PriorityDispatchTest, WithoutHighPriorityExecutorShortLaunchesAreNeverHeldBack) {
  auto gate = NewExecutorsGate();
  EXPECT_EQ(NumAdmitted(*gate, Short(10), 1000), 1000);
}

TEST_F(PriorityDispatchTest, AShortLaunchThatWaitsForALaterOneIsNotWaitedForForever) {
  auto gate = GateBesideHighPriority();
  ScriptedGpu::Stop();
  WhileTimePasses(std::chrono::milliseconds(50), [&] {
    for (int launch = 0; launch < 6; ++launch) gate->AfterDispatch(Short(30), gate->BeforeDispatch(Short(30)));
  });
  ScriptedGpu::Go();
}

}  // namespace
}  // namespace tally::server
