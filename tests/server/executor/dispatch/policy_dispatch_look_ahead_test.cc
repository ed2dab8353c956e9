// Admission under `look-ahead` and `time-slices`: what is in force unless somebody asks for another policy.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "scheduler/tuning.h"
#include "server/executor/dispatch/policy_dispatch.h"
#include "server/executor/driver/devices.h"
#include "tests/server/executor/dispatch/scripted_gpu.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/thread_state.h"

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

// Admission of an executor with one session.
struct AdmissionOfOne {
  explicit AdmissionOfOne(std::unique_ptr<Admission> its_admission)
      : admission(std::move(its_admission)), tenant(admission->AddTenant({})) {}

  // What is asked at admission, and by whom.
  struct Asking {
    DispatchPlace place;
    scheduler::LaunchAsked asked;
  };
  Asking High() const { return {{.is_high_priority = true, .tenant = tenant.get()}, {}}; }
  Asking BestEffort() const { return {{.tenant = tenant.get()}, {}}; }
  Asking Short(int microseconds, uintptr_t stream = 1) const {
    return {{.stream = reinterpret_cast<CUstream>(stream), .tenant = tenant.get()},
            {.duration = std::chrono::microseconds(microseconds), .is_short = true}};
  }
  DispatchPass Enter(const Asking& one) { return admission->BeforeDispatch(one.place, one.asked); }
  void Leave(const Asking& one, const DispatchPass& pass) { admission->AfterDispatch(one.place, pass); }
  DispatchPass Launch(const Asking& one) {
    const DispatchPass pass = Enter(one);
    if (pass.may_go) Leave(one, pass);
    return pass;
  }

  std::unique_ptr<Admission> admission;
  std::unique_ptr<AdmissionTenant> tenant;
};

class LookAheadDispatchTest : public testing::Test {
 protected:
  LookAheadDispatchTest() { ScriptedGpu::Reset(); }
  AdmissionOfOne NewExecutor(std::chrono::nanoseconds starvation_bound = {}) {
    auto page = ActivityPage::Open(directory_ + "/activity");
    EXPECT_TRUE(page) << page.error().ToString();
    return AdmissionOfOne(CreatePolicyDispatch(table_, *devices_, std::move(*page),
                                               **scheduler::FindPolicy(scheduler::kLookAheadPolicy), starvation_bound,
                                               clock_));
  }
  // Beside a high-priority executor that has nothing to do at present.
  AdmissionOfOne NewExecutorBesideHighPriority() {
    high_ = std::make_unique<AdmissionOfOne>(NewExecutor());
    high_->Launch(high_->High());
    AdmissionOfOne executor = NewExecutor();
    while (executor.admission->watch()->IsClosed(0)) {
      clock_.Advance(std::chrono::microseconds(100));
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return executor;
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
  // Hold-offs end.
  void JoinWhileTimePasses(std::thread& thread) {
    WhileTimePasses(std::chrono::milliseconds(1), [&] { thread.join(); });
  }
  // Launches until admission keeps one back, at most `most`; that one is let go at the end. Time stands still
  // meanwhile: nothing goes because it has waited for long.
  int NumAdmitted(AdmissionOfOne& executor, const AdmissionOfOne::Asking& one, int most) {
    ScriptedGpu::Stop();
    std::atomic<int> num_admitted{0};
    std::thread launcher([&] {
      for (int i = 0; i < most; ++i) {
        const DispatchPass pass = executor.Enter(one);
        ++num_admitted;
        executor.Leave(one, pass);
      }
    });
    const int num = ScriptedGpu::AwaitKept(num_admitted, most);
    ScriptedGpu::Go();
    launcher.join();
    EXPECT_EQ(num_admitted, most);
    return num;
  }

  const DriverTable table_ = ScriptedGpu::Table();
  const std::unique_ptr<Devices> devices_ = *Devices::Create(table_);
  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
  TestClock clock_;
  std::unique_ptr<AdmissionOfOne> high_;  // last: its threads use the others
};

TEST_F(LookAheadDispatchTest, BestEffortAloneIsNeverHeldBackNorNoted) {
  AdmissionOfOne executor = NewExecutor();
  const auto another = executor.admission->AddTenant({});
  ScriptedGpu::Stop();
  for (int launch = 0; launch < 1000; ++launch) {
    executor.Launch(executor.BestEffort());
    executor.Launch({{.tenant = another.get()}, {}});
  }
  EXPECT_EQ(ScriptedGpu::NumRecorded(), 0u) << "company is nobody's business, and what is in flight is not known";
  ScriptedGpu::Go();
}

TEST_F(LookAheadDispatchTest, BestEffortWaitsForAnotherExecutorsHighPriorityWork) {
  AdmissionOfOne high = NewExecutor();
  AdmissionOfOne best_effort = NewExecutor();
  ScriptedGpu::Stop();
  high.Launch(high.High());
  std::atomic<bool> dispatched{false};
  std::atomic<pid_t> thread_id{0};
  std::thread launcher([&] {
    thread_id = ::gettid();
    best_effort.Launch(best_effort.BestEffort());
    dispatched = true;
  });
  while (!dispatched && !IsAsleep(thread_id)) std::this_thread::yield();
  WhileTimePasses(std::chrono::milliseconds(10), [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  EXPECT_FALSE(dispatched) << "high-priority work is still on the GPU";
  ScriptedGpu::Go();
  JoinWhileTimePasses(launcher);
  EXPECT_TRUE(dispatched);
  EXPECT_EQ(best_effort.tenant->figures["held_launches"], 1u);
}

TEST_F(LookAheadDispatchTest, LeftToTimeSlicesNobodyWaits) {
  AdmissionOfOne high = NewExecutor();
  AdmissionOfOne best_effort = NewExecutor();
  high.admission->LeaveToTimeSlices(true);
  best_effort.admission->LeaveToTimeSlices(true);
  ScriptedGpu::Stop();
  high.Launch(high.High());
  const uint64_t num_recorded = ScriptedGpu::NumRecorded();
  EXPECT_TRUE(best_effort.admission->watch()->IsClosed(0)) << "high-priority work is announced all the same";
  EXPECT_FALSE(best_effort.admission->HoldsCopies(0));
  for (int launch = 0; launch < 1000; ++launch) EXPECT_TRUE(best_effort.Launch(best_effort.BestEffort()).may_go);
  EXPECT_EQ(ScriptedGpu::NumRecorded(), num_recorded) << "best-effort launches are not noted";
  ScriptedGpu::Go();
}

TEST_F(LookAheadDispatchTest, WhoWaitsIsLetGoWhenItIsLeftToTimeSlicesAndTheNextOneWaitsAgain) {
  AdmissionOfOne high = NewExecutor();
  AdmissionOfOne best_effort = NewExecutor();
  ScriptedGpu::Stop();
  high.Launch(high.High());
  std::atomic<int> num_dispatched{0};
  std::thread launcher([&] {
    for (int launch = 0; launch < 2; ++launch) {
      const DispatchPass pass = best_effort.Enter(best_effort.BestEffort());
      EXPECT_TRUE(pass.may_go);
      best_effort.admission->LeaveToTimeSlices(false);
      ++num_dispatched;
      best_effort.Leave(best_effort.BestEffort(), pass);
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(num_dispatched, 0);
  best_effort.admission->LeaveToTimeSlices(true);
  while (num_dispatched == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(num_dispatched, 1) << "high-priority work is still on the GPU";
  EXPECT_TRUE(best_effort.admission->HoldsCopies(0));
  ScriptedGpu::Go();
  JoinWhileTimePasses(launcher);
}

TEST_F(LookAheadDispatchTest, BothClassesInOneExecutorKeepTheRule) {
  AdmissionOfOne executor = NewExecutor();
  ScriptedGpu::Stop();
  executor.Launch(executor.High());
  executor.Launch(executor.High());  // high-priority work never waits
  std::atomic<bool> dispatched{false};
  std::thread launcher([&] {
    executor.Launch(executor.BestEffort());
    dispatched = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(dispatched);
  ScriptedGpu::Go();
  JoinWhileTimePasses(launcher);
}

TEST_F(LookAheadDispatchTest, AProgramThatIsMadeHighPriorityWhileItIsHeldGoes) {
  AdmissionOfOne high = NewExecutor();
  AdmissionOfOne executor = NewExecutor();
  ScriptedGpu::Stop();
  high.Launch(high.High());
  std::atomic<bool> has_gone{false};
  std::thread launcher([&] {
    EXPECT_TRUE(executor.Launch(executor.BestEffort()).may_go);
    has_gone = true;
  });
  while (!has_gone) {  // one that comes only after the change need not be held at all
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    executor.tenant->SetShare({.tenant_class = scheduler::TenantClass::kHighPriority});
  }
  launcher.join();
  ScriptedGpu::Go();
}

TEST_F(LookAheadDispatchTest, WithAStarvationBoundOneLaunchGoesPerBound) {
  constexpr auto kBound = std::chrono::milliseconds(400);
  AdmissionOfOne high = NewExecutor();
  AdmissionOfOne best_effort = NewExecutor(kBound);
  ScriptedGpu::Stop();
  high.Launch(high.High());
  const TimePoint began = clock_.Now();
  std::atomic<int> num_running{2};
  std::vector<std::thread> programs;
  for (int i = 0; i < 2; ++i) {
    programs.emplace_back([&] {
      const auto tenant = best_effort.admission->AddTenant({});
      for (int launch = 0; launch < 2; ++launch) EXPECT_TRUE(best_effort.Launch({{.tenant = tenant.get()}, {}}).may_go);
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

TEST_F(LookAheadDispatchTest, ShutdownEndsTheWait) {
  AdmissionOfOne high = NewExecutor();
  AdmissionOfOne best_effort = NewExecutor();
  ScriptedGpu::Stop();
  high.Launch(high.High());
  std::thread launcher([&] { EXPECT_TRUE(best_effort.Launch(best_effort.BestEffort()).may_go); });
  best_effort.admission->Open();
  launcher.join();
  ScriptedGpu::Go();
}

TEST_F(LookAheadDispatchTest, AKernelThatWaitsForALaterOneIsNotWaitedForForever) {
  AdmissionOfOne best_effort = NewExecutorBesideHighPriority();
  best_effort.Launch(best_effort.BestEffort());
  ScriptedGpu::Stop();  // from here on nothing completes: what is in flight waits for what is yet to be launched
  WhileTimePasses(std::chrono::milliseconds(50), [&] {
    for (int launch = 0; launch < 12; ++launch) best_effort.Launch(best_effort.BestEffort());
  });
  ScriptedGpu::Go();
}

TEST_F(LookAheadDispatchTest, ShortLaunchesInFlightDrainWithinTheThreshold) {
  AdmissionOfOne executor = NewExecutorBesideHighPriority();
  executor.admission->Tune({.turnaround_threshold = std::chrono::microseconds(30) + scheduler::kGiveBackOverhead});
  EXPECT_EQ(NumAdmitted(executor, executor.Short(10), 20), 3);
  EXPECT_EQ(NumAdmitted(executor, executor.Short(16), 20), 1);
  EXPECT_EQ(NumAdmitted(executor, executor.Short(15), 20), 2);
  EXPECT_EQ(NumAdmitted(executor, executor.Short(500), 20), 1) << "longer than the threshold: one at a time";
  EXPECT_EQ(NumAdmitted(executor, executor.Short(0), 20), 1) << "not known: one at a time";
  executor.admission->Tune({.turnaround_threshold = std::chrono::microseconds(100) + scheduler::kGiveBackOverhead});
  EXPECT_EQ(NumAdmitted(executor, executor.Short(10), 20), 10);
}

TEST_F(LookAheadDispatchTest, ShortLaunchesOfSeveralStreamsDrainTogether) {
  AdmissionOfOne executor = NewExecutorBesideHighPriority();
  executor.admission->Tune({.turnaround_threshold = std::chrono::microseconds(30) + scheduler::kGiveBackOverhead});
  ScriptedGpu::Stop();
  executor.Launch(executor.Short(10, 7));
  EXPECT_EQ(NumAdmitted(executor, executor.Short(10, 8), 20), 2);
}

TEST_F(LookAheadDispatchTest, OthersKeepTheirOwnRuleBesideShortOnes) {
  AdmissionOfOne executor = NewExecutorBesideHighPriority();
  ScriptedGpu::Stop();
  executor.Launch(executor.Short(10));
  EXPECT_EQ(NumAdmitted(executor, executor.BestEffort(), 5), 1) << "a look-ahead begins with one";
}

TEST_F(LookAheadDispatchTest, WhatCanYieldIsNeitherBoundedNorNotedButStillStaysBack) {
  AdmissionOfOne executor = NewExecutorBesideHighPriority();
  AdmissionOfOne::Asking yielding = executor.BestEffort();
  yielding.asked.can_yield = true;
  const uint64_t num_recorded = ScriptedGpu::NumRecorded();
  EXPECT_EQ(NumAdmitted(executor, yielding, 1000), 1000);
  EXPECT_EQ(ScriptedGpu::NumRecorded(), num_recorded);
  high_->Enter(high_->High());
  std::atomic<bool> has_gone{false};
  std::thread launcher([&] {
    executor.Launch(yielding);
    has_gone = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(has_gone);
  high_->Leave(high_->High(), {});
  JoinWhileTimePasses(launcher);
}

TEST_F(LookAheadDispatchTest, WhatCanBeDescheduledIsNotBoundedButStillStaysBack) {
  AdmissionOfOne executor = NewExecutorBesideHighPriority();
  executor.admission->ExpectDescheduling(1, true);  // another device
  EXPECT_LT(NumAdmitted(executor, executor.BestEffort(), 100), 100);
  executor.admission->ExpectDescheduling(0, true);
  const uint64_t num_recorded = ScriptedGpu::NumRecorded();
  EXPECT_EQ(NumAdmitted(executor, executor.BestEffort(), 500), 500);
  EXPECT_EQ(ScriptedGpu::NumRecorded(), num_recorded + 4) << "an event each is what descheduling is to save";
  high_->Enter(high_->High());
  EXPECT_TRUE(executor.admission->watch()->IsClosed(0));
  std::atomic<bool> has_gone{false};
  std::thread launcher([&] {
    executor.Launch(executor.BestEffort());
    has_gone = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(has_gone);
  high_->Leave(high_->High(), {});
  JoinWhileTimePasses(launcher);
  executor.admission->ExpectDescheduling(0, false);
  EXPECT_LT(NumAdmitted(executor, executor.BestEffort(), 100), 100) << "bounded again, whatever was allowed before";
}

TEST_F(LookAheadDispatchTest, WhatCanBeDescheduledDoesNotFillTheDriversRing) {
  AdmissionOfOne executor = NewExecutorBesideHighPriority();
  executor.admission->ExpectDescheduling(0, true);
  const auto another = executor.admission->AddTenant({});
  AdmissionOfOne::Asking one = executor.BestEffort();
  one.place.stream = reinterpret_cast<CUstream>(1);
  constexpr int kPerAsking = 128;
  constexpr int kMost = 4 * kPerAsking;  // as LookAheadPolicy says
  EXPECT_EQ(NumAdmitted(executor, one, kMost + kPerAsking), kMost);
  const AdmissionOfOne::Asking of_another{{.stream = reinterpret_cast<CUstream>(2), .tenant = another.get()}, {}};
  EXPECT_EQ(NumAdmitted(executor, of_another, kMost), kMost) << "each for itself";
  ScriptedGpu::Stop();
  for (int launch = 0; launch < kMost; ++launch) executor.Launch(one);
  std::thread leaving([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    executor.tenant->Leave();
  });
  EXPECT_FALSE(executor.Enter(one).may_go);
  leaving.join();
  ScriptedGpu::Go();
  executor.tenant->End();
}

TEST_F(LookAheadDispatchTest, WhoIsFarAheadIsNotWaitedForForever) {
  AdmissionOfOne executor = NewExecutorBesideHighPriority();
  executor.admission->ExpectDescheduling(0, true);
  ScriptedGpu::Stop();
  WhileTimePasses(std::chrono::milliseconds(50), [&] {
    for (int launch = 0; launch < 700; ++launch) executor.Launch(executor.BestEffort());
  });
  ScriptedGpu::Go();
}

TEST_F(LookAheadDispatchTest, BesideHighPriorityWorkOnAnotherDeviceNothingIsHeldOrCounted) {
  AdmissionOfOne executor = NewExecutorBesideHighPriority();
  const DispatchPass of_high = high_->Enter(high_->High());  // it works on
  EXPECT_TRUE(executor.admission->watch()->IsClosed(0));
  AdmissionOfOne::Asking one = executor.BestEffort();
  one.place.device = 1;
  constexpr int kFarAhead = 300;
  EXPECT_EQ(NumAdmitted(executor, one, kFarAhead), kFarAhead);
  EXPECT_FALSE(executor.Launch(one).is_noted());
  EXPECT_FALSE(executor.admission->HoldsCopies(1));
  EXPECT_TRUE(executor.admission->HoldsCopies(0));
  high_->Leave(high_->High(), of_high);
}

TEST_F(LookAheadDispatchTest, WorkOnOneDeviceClosesThatOne) {
  AdmissionOfOne high = NewExecutor();
  AdmissionOfOne executor = NewExecutor();
  HighPriorityWatch& watch = *executor.admission->watch();
  AdmissionOfOne::Asking there = high.High();
  there.place.device = 1;
  high.Launch(there);
  WhileTimePasses(std::chrono::milliseconds(1), [&] {
    while (watch.IsClosed(1)) std::this_thread::yield();
  });
  EXPECT_TRUE(watch.IsHighPriorityPresent(1));
  const DispatchPass here = high.Enter(high.High());
  EXPECT_TRUE(watch.IsClosed(0));
  EXPECT_FALSE(watch.IsClosed(1));
  high.Leave(high.High(), here);
}

TEST_F(LookAheadDispatchTest, WhoseOwnProgramHasPriorityOnOneDeviceIsNotOneOfThemOnTheOther) {
  AdmissionOfOne executor = NewExecutor();
  executor.Launch(executor.High());
  EXPECT_TRUE(executor.admission->watch()->IsOneOfThem(0));
  EXPECT_FALSE(executor.admission->watch()->IsOneOfThem(1));
  EXPECT_TRUE(executor.admission->watch()->IsHighPriorityPresent(0));
  EXPECT_FALSE(executor.admission->watch()->IsHighPriorityPresent(1));
}

TEST_F(LookAheadDispatchTest, CopiesAreHeldOnlyBesideAHighPriorityExecutor) {
  AdmissionOfOne alone = NewExecutor();
  EXPECT_FALSE(alone.admission->HoldsCopies(0));
  AdmissionOfOne executor = NewExecutorBesideHighPriority();
  EXPECT_TRUE(executor.admission->HoldsCopies(0));
  EXPECT_TRUE(alone.admission->HoldsCopies(0)) << "one has come since";
  high_.reset();
  EXPECT_FALSE(executor.admission->HoldsCopies(0));
}

TEST_F(LookAheadDispatchTest, SmallCopiesAreShortAndLargeOnesAreAsFewAsDrainQuickly) {
  AdmissionOfOne executor = NewExecutorBesideHighPriority();
  executor.admission->Tune({.turnaround_threshold = std::chrono::microseconds(30) + scheduler::kGiveBackOverhead});
  const auto copy = [&](int microseconds) {
    AdmissionOfOne::Asking one = executor.Short(microseconds);
    one.asked.is_short = false;
    return one;
  };
  EXPECT_EQ(NumAdmitted(executor, copy(10), 20), 3);
  EXPECT_EQ(NumAdmitted(executor, copy(300), 5), 1) << "a look-ahead begins with one";
  AdmissionOfOne::Asking of_a_patient_program = copy(300);
  of_a_patient_program.asked.turnaround = std::chrono::milliseconds(1);
  EXPECT_EQ(NumAdmitted(executor, of_a_patient_program, 20), 3);
}

TEST_F(LookAheadDispatchTest, WhatGoesBecauseNothingEndsSaysSo) {
  AdmissionOfOne executor = NewExecutorBesideHighPriority();
  ScriptedGpu::Stop();
  for (const bool is_forced : {false, true})
    WhileTimePasses(std::chrono::milliseconds(50),
                    [&] { EXPECT_EQ(executor.Launch(executor.BestEffort()).is_forced, is_forced); });
  ScriptedGpu::Go();
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(executor.Launch(executor.BestEffort()).is_forced);
}

TEST_F(LookAheadDispatchTest, AClientThatHasLeftLaunchesNothingMore) {
  AdmissionOfOne executor = NewExecutorBesideHighPriority();
  ScriptedGpu::Stop();
  executor.Launch(executor.BestEffort());
  std::thread held([&] {  // time stands still: for ever, if it were not for Leave()
    while (executor.Launch(executor.BestEffort()).may_go) {
    }
  });
  executor.tenant->Leave();
  held.join();
  ScriptedGpu::Go();
}

TEST_F(LookAheadDispatchTest, WithoutHighPriorityExecutorShortLaunchesAreNeverHeldBack) {
  AdmissionOfOne executor = NewExecutor();
  EXPECT_EQ(NumAdmitted(executor, executor.Short(10), 1000), 1000);
}

TEST_F(LookAheadDispatchTest, AShortLaunchThatWaitsForALaterOneIsNotWaitedForForever) {
  AdmissionOfOne executor = NewExecutorBesideHighPriority();
  ScriptedGpu::Stop();
  WhileTimePasses(std::chrono::milliseconds(50), [&] {
    for (int launch = 0; launch < 6; ++launch) executor.Launch(executor.Short(30));
  });
  ScriptedGpu::Go();
}

}  // namespace
}  // namespace tally::server
