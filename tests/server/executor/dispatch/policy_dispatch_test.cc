#include "server/executor/dispatch/policy_dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/executor/dispatch/page_watch.h"
#include "server/executor/driver/devices.h"
#include "tests/server/executor/dispatch/scripted_gpu.h"
#include "tests/support/still_clock.h"
#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

using std::chrono::milliseconds;

class PolicyDispatchFixture : public testing::Test {
 protected:
  PolicyDispatchFixture() { ScriptedGpu::Reset(); }
  // Before any admission is made: nothing goes because it has waited for long.
  void StopTheClock() {
    still_clock_.Advance(std::chrono::seconds(1));
    clock_ = &still_clock_;
  }
  ~PolicyDispatchFixture() override { ScriptedGpu::Go(); }

  std::unique_ptr<Admission> NewAdmission(std::string_view policy, std::chrono::nanoseconds starvation_bound = {}) {
    auto page = ActivityPage::Open(directory_ + "/activity");
    EXPECT_TRUE(page) << page.error().ToString();
    return CreatePolicyDispatch(table_, *devices_, std::move(*page), **scheduler::FindPolicy(policy), starvation_bound,
                                *clock_);
  }

  // A session that launches from one thread.
  struct Program {
    Program(Admission& its_admission, uintptr_t its_stream, bool is_high = false, uint32_t weight = 100)
        : admission(its_admission), tenant(admission.AddTenant({.weight = weight})) {
      place.is_high_priority = is_high;
      place.stream = reinterpret_cast<CUstream>(its_stream);
      place.tenant = tenant.get();
      asked.kind = 7;
    }
    // Whether the launch was made.
    bool Launch() {
      const DispatchPass pass = admission.BeforeDispatch(place, asked);
      if (!pass.may_go) return false;
      ++num_launches;
      is_forced = pass.is_forced;
      admission.AfterDispatch(place, pass);
      return true;
    }
    Admission& admission;
    std::unique_ptr<AdmissionTenant> tenant;
    DispatchPlace place;
    scheduler::LaunchAsked asked;
    std::atomic<int> num_launches{0};
    bool is_forced = false;  // the last one
  };

  const SteadyClock steady_clock_;
  StillClock still_clock_;
  const Clock* clock_ = &steady_clock_;
  const DriverTable table_ = ScriptedGpu::Table();
  const std::unique_ptr<Devices> devices_ = *Devices::Create(table_);
  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
};

std::string NameOf(const testing::TestParamInfo<const char*>& policy) {
  std::string name = policy.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class PolicyDispatchTest : public PolicyDispatchFixture, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, PolicyDispatchTest, testing::Values("kernel-granular", "tally-paper", "fair", "tally"),
                         NameOf);

TEST_P(PolicyDispatchTest, AProgramThatIsAloneIsNeverHeldBack) {
  auto admission = NewAdmission(GetParam());
  Program program(*admission, 1);
  ScriptedGpu::Stop();
  for (int i = 0; i < 1000; ++i) program.Launch();
  EXPECT_EQ(program.num_launches, 1000);
  ScriptedGpu::Go();
}

TEST_P(PolicyDispatchTest, SeveralProgramsAllGetTheirLaunchesThrough) {
  auto admission = NewAdmission(GetParam());
  std::vector<std::unique_ptr<Program>> programs;
  for (uintptr_t i = 1; i <= 4; ++i) programs.push_back(std::make_unique<Program>(*admission, i));
  std::vector<std::thread> threads;
  for (const auto& program : programs) {
    threads.emplace_back([&program = *program] {
      for (int i = 0; i < 500; ++i) program.Launch();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& program : programs) EXPECT_EQ(program->num_launches, 500);
}

TEST_P(PolicyDispatchTest, AKernelThatWaitsForALaterOneIsNotWaitedForForever) {
  auto admission = NewAdmission(GetParam());
  Program one(*admission, 1);
  Program other(*admission, 2);
  one.Launch();
  other.Launch();
  ScriptedGpu::Stop();  // from here on nothing completes: what is in flight waits for what is yet to be launched
  // In turn: who has been without company for a second would not be asked.
  for (Program* const program : {&one, &other, &one, &other, &one}) program->Launch();
  EXPECT_EQ(one.num_launches, 4);
  EXPECT_EQ(other.num_launches, 3);
  EXPECT_TRUE(one.is_forced) << "the rest of a copy goes at once then";
  ScriptedGpu::Go();
}

TEST_P(PolicyDispatchTest, AClientThatHasLeftLaunchesNothingMore) {
  StopTheClock();
  auto admission = NewAdmission(GetParam());
  Program stays(*admission, 1);
  Program leaves(*admission, 2);
  stays.Launch();
  leaves.Launch();
  ScriptedGpu::Stop();
  stays.Launch();  // unmeasured or not, something is in flight that does not end
  std::thread held([&] {
    while (leaves.Launch()) {
    }
  });
  ScriptedGpu::AwaitKept(leaves.num_launches, INT_MAX);
  leaves.tenant->Leave();
  held.join();
  ScriptedGpu::Go();
  // Nor is it given its turn, before it has ended or after.
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(stays.Launch());
  leaves.tenant->End();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(stays.Launch());
}

TEST_P(PolicyDispatchTest, ShutdownEndsTheWait) {
  auto admission = NewAdmission(GetParam());
  Program one(*admission, 1);
  Program other(*admission, 2);
  one.Launch();
  other.Launch();
  ScriptedGpu::Stop();
  std::thread held([&] {
    for (int i = 0; i < 2000; ++i) other.Launch();  // 250 ms each if it were not for Open()
  });
  admission->Open();
  held.join();
  EXPECT_EQ(other.num_launches, 2001);
  ScriptedGpu::Go();
}

class StrictPolicyTest : public PolicyDispatchTest {};
INSTANTIATE_TEST_SUITE_P(All, StrictPolicyTest, testing::Values("kernel-granular", "tally-paper", "tally"), NameOf);

TEST_P(StrictPolicyTest, BestEffortWaitsForAnotherExecutorsHighPriorityWork) {
  auto high_admission = NewAdmission(GetParam());
  auto admission = NewAdmission(GetParam());
  Program service(*high_admission, 1, /*is_high=*/true);
  Program training(*admission, 2);
  ScriptedGpu::Stop();
  service.Launch();
  std::thread held([&] { training.Launch(); });
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(training.num_launches, 0) << "high-priority work is still on the GPU";
  service.Launch();  // never waits
  ScriptedGpu::Go();
  held.join();
  EXPECT_EQ(training.num_launches, 1);
}

TEST_P(StrictPolicyTest, AHeldClientThatLeavesIsReleasedWhileAdmissionIsClosed) {
  auto high_admission = NewAdmission(GetParam());
  auto admission = NewAdmission(GetParam());
  Program service(*high_admission, 1, /*is_high=*/true);
  Program training(*admission, 2);
  ScriptedGpu::Stop();
  service.Launch();
  std::thread held([&] { EXPECT_FALSE(training.Launch()); });
  std::this_thread::sleep_for(milliseconds(20));
  training.tenant->Leave();
  held.join();
  training.tenant->End();
  ScriptedGpu::Go();
}

class TallyPolicyDispatchTest : public PolicyDispatchFixture {
 protected:
  TallyPolicyDispatchTest() { StopTheClock(); }
  // High-priority work is over, and its hold-off.
  void AwaitOpen(Admission& admission) {
    while (admission.watch()->IsClosed(0)) {
      still_clock_.Advance(std::chrono::microseconds(100));
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  // Nothing completes: how many of so many launches are made all the same. Then everything goes.
  static int NumMadeOf(int most, Program& program) {
    ScriptedGpu::Stop();
    std::atomic<int> num_made{0};
    std::thread launcher([&] {
      for (int i = 0; i < most; ++i) num_made += program.Launch() ? 1 : 0;
    });
    const int num = ScriptedGpu::AwaitKept(num_made, most);
    ScriptedGpu::Go();
    launcher.join();
    EXPECT_EQ(num_made, most);
    return num;
  }
};

// What goes at once is what drains in 500 us, by what earlier launches took.
TEST_F(TallyPolicyDispatchTest, TheDrainBudgetIsCountedInTime) {
  for (const auto& [milliseconds_each, num_expected] : {std::pair(0.05f, 10), std::pair(0.2f, 2)}) {
    ScriptedGpu::Reset();
    ScriptedGpu::SetDuration(milliseconds_each);
    auto high_admission = NewAdmission("tally");
    auto admission = NewAdmission("tally");
    Program service(*high_admission, 1, /*is_high=*/true);
    service.Launch();
    AwaitOpen(*admission);
    Program training(*admission, 2);
    for (int i = 0; i < 11; ++i) training.Launch();
    training.tenant->End();
    Program next(*admission, 3);
    for (int i = 0; i < 6; ++i) next.Launch();
    EXPECT_EQ(NumMadeOf(20, next), num_expected);
  }
}

TEST_F(TallyPolicyDispatchTest, ShortLaunchesBesideAHighPriorityExecutorDrainWithinTheThreshold) {
  auto high = NewAdmission("tally");
  Program service(*high, 1, /*is_high=*/true);
  auto admission = NewAdmission("tally");
  admission->Tune({.turnaround_threshold = std::chrono::microseconds(30) + scheduler::kGiveBackOverhead});
  Program slices(*admission, 2);
  slices.asked.is_short = true;
  slices.asked.duration = std::chrono::microseconds(10);
  ScriptedGpu::SetDuration(0.01f);
  service.Launch();
  AwaitOpen(*admission);
  EXPECT_EQ(NumMadeOf(20, slices), 3);
}

// Two that leave room for one another drain side by side, within the 500 us; with a third they would take turns.
TEST_F(TallyPolicyDispatchTest, SmallLaunchesCountForWhatTheyFillOfTheGpu) {
  auto high = NewAdmission("tally");
  Program service(*high, 1, /*is_high=*/true);
  auto admission = NewAdmission("tally");
  service.Launch();
  AwaitOpen(*admission);
  std::vector<std::unique_ptr<Program>> programs;
  for (uintptr_t i = 2; i <= 4; ++i) {
    programs.push_back(std::make_unique<Program>(*admission, i));
    programs.back()->asked.duration = std::chrono::microseconds(300);
    programs.back()->asked.num_blocks = 40 * ScriptedGpu::kMultiprocessors / 100;
  }
  ScriptedGpu::SetDuration(0.3f);
  ScriptedGpu::Stop();
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(programs[i]->Launch());
  EXPECT_EQ(NumMadeOf(1, *programs[2]), 0);
}

// A best-effort launch that waits sleeps while there is high-priority work. If it alone looked what has ended, launches
// of a lower level would wait for as long: 5 ms on average, which nearly all are far below.
TEST_F(TallyPolicyDispatchTest, AHighPriorityLaunchThatWaitsLooksForItself) {
  auto admission = NewAdmission("tally");
  Program upper(*admission, 1, /*is_high=*/true), lower(*admission, 2, /*is_high=*/true), training(*admission, 3);
  upper.tenant->SetShare({.tenant_class = scheduler::TenantClass::kHighPriority, .level = 1});
  lower.tenant->SetShare({.tenant_class = scheduler::TenantClass::kHighPriority});
  ScriptedGpu::Stop();
  EXPECT_TRUE(upper.Launch());
  std::thread sleeper([&] { EXPECT_TRUE(training.Launch()); });
  std::this_thread::sleep_for(2 * PageWatch::kLook);  // it waits, and looks
  const auto end_all = [] {
    ScriptedGpu::Go();
    ScriptedGpu::Stop();
  };
  const SteadyClock clock;
  constexpr int kRounds = 15;
  int num_soon = 0;
  for (int round = 1; round <= kRounds; ++round) {
    std::thread waiting([&] { EXPECT_TRUE(lower.Launch()); });
    std::this_thread::sleep_for(milliseconds(3));
    EXPECT_EQ(lower.num_launches, round - 1);
    const TimePoint ended_at = clock.Now();
    end_all();
    waiting.join();
    num_soon += clock.Now() - ended_at < PageWatch::kLook / 4 ? 1 : 0;
    end_all();
    EXPECT_TRUE(upper.Launch());
  }
  EXPECT_GE(num_soon, kRounds / 3) << "none was when the sleeper alone looked; a busy machine is late as well";
  EXPECT_EQ(training.num_launches, 0);
  ScriptedGpu::Go();
  while (training.num_launches == 0) {
    still_clock_.Advance(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(1));
  }
  sleeper.join();
}

TEST_F(PolicyDispatchFixture, WithAStarvationBoundALaunchGoesBesideHighPriorityWork) {
  constexpr auto kBound = std::chrono::milliseconds(30);
  auto high = NewAdmission("tally");
  auto admission = NewAdmission("tally", kBound);
  Program service(*high, 1, /*is_high=*/true);
  Program program(*admission, 2);
  ScriptedGpu::Stop();
  service.Launch();
  const SteadyClock clock;
  const TimePoint began = clock.Now();
  EXPECT_TRUE(program.Launch());
  EXPECT_GE(clock.Now() - began, kBound);
  ScriptedGpu::Go();
}

}  // namespace
}  // namespace tally::server
