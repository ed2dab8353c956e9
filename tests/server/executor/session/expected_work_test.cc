// What a client says of work to come, and what an executor does about it, on the fake driver.
#include "server/executor/session/expected_work.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "base/futex.h"
#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::Op;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

uint64_t NowNs() { return static_cast<uint64_t>(steady_clock::now().time_since_epoch().count()); }

class ExpectedWorkTest : public ExecutorFixture {
 protected:
  void Identify(server::SessionIdentity& identity) override { identity.priority_class = priority_class_; }
  uint32_t Open(ScriptedClient& client) {
    const auto reply = client.Request(shm::SessionRequestKind::kOpenArrivals);
    return reply ? reply->cuda_result : 0xffffffff;
  }
  void Expect(ScriptedClient& client, uint64_t from_ns, uint64_t until_ns) {
    shm::ArrivalPage& page = client.arrivals();
    page.expected_from_ns = from_ns;
    page.expected_until_ns = until_ns;
    page.bell.fetch_add(1);
    FutexWake(page.bell, 1);
  }
  uint64_t Figure(control::Figure figure) { return executor_->Snapshot().at(0).figures[figure]; }
  static bool Becomes(const std::function<bool()>& condition) {
    const auto until = steady_clock::now() + std::chrono::seconds(20);
    while (!condition() && steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
    return condition();
  }

  shm::PriorityClass priority_class_ = shm::PriorityClass::kHighPriority;
};

TEST_F(ExpectedWorkTest, BestEffortProgramsAreRefused) {
  priority_class_ = shm::PriorityClass::kBestEffort;
  const auto client = Connect();
  EXPECT_EQ(Open(*client), static_cast<uint32_t>(CUDA_ERROR_NOT_SUPPORTED));
  EXPECT_FALSE(client->IsOver());
}

class ExpectedWorkInOneContextTest : public ExpectedWorkTest {
  void Configure(server::ExecutorConfig& config) override { config.are_classes_mixed = true; }
};

TEST_F(ExpectedWorkInOneContextTest, IsRefused) {
  EXPECT_EQ(Open(*Connect()), static_cast<uint32_t>(CUDA_ERROR_NOT_SUPPORTED));
}

TEST_F(ExpectedWorkTest, ItIsOpenedOnceAndOnceMore) {
  const auto client = Connect();
  EXPECT_EQ(Open(*client), 0u);
  EXPECT_EQ(Open(*client), 0u);
}

TEST_F(ExpectedWorkTest, TheClientIsToldWhenWorkBeginsAndEnds) {
  const auto client = Connect();
  ASSERT_EQ(Open(*client), 0u);
  const auto channel = client->OpenChannel();
  const uint64_t kernel = LoadKernel(*channel, "kernel");
  shm::ArrivalPage& page = client->arrivals();
  const uint64_t before = NowNs();
  for (uint64_t i = 1; i <= 10; ++i) {
    channel->Post(Op::kLaunch, LaunchOf(kernel, shm::kLegacyStream));
    ASSERT_EQ(channel->Call(Op::kSynchronizeContext).result, 0u);
    EXPECT_EQ(page.num_begun.load(), i);
    EXPECT_EQ(page.is_busy.load(), 0u);
  }
  EXPECT_GE(page.begun_at_ns[9 % shm::kArrivalTimes].load(), before);
  EXPECT_LE(page.begun_at_ns[9 % shm::kArrivalTimes].load(), NowNs());
}

class ExpectedWorkOnTwoDevicesTest : public ExpectedWorkTest {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    driver_.num_devices = 2;
    config.on_device_used = [this] { ++num_told_; };
  }
  std::atomic<int> num_told_{0};
};

TEST_F(ExpectedWorkOnTwoDevicesTest, ARequestThatGoesOnToAnotherDeviceBeginsOnce) {
  const auto client = Connect();
  ASSERT_EQ(Open(*client), 0u);
  const auto channel = client->OpenChannel();
  const uint64_t first = LoadKernel(*channel, "kernel");
  const uint64_t second = LoadKernel(*channel, "kernel", nullptr, 2, ".version 8.0\n.target sm_80\n", 1);
  ASSERT_NE(second, 0u);
  for (uint64_t i = 1; i <= 10; ++i) {
    driver_.is_work_unfinished = true;  // or the first might be over before the second is there
    channel->Post(Op::kLaunch, LaunchOf(first, shm::kLegacyStream), 0);
    channel->Post(Op::kLaunch, LaunchOf(second, shm::kLegacyStream), 1);
    ASSERT_TRUE(Becomes([&] { return driver_.num_launches() == 2 * i; }));
    driver_.is_work_unfinished = false;
    ASSERT_EQ(channel->Call(Op::kSynchronizeContext, {}, 0).result, 0u);
    ASSERT_EQ(channel->Call(Op::kSynchronizeContext, {}, 1).result, 0u);
    EXPECT_EQ(client->arrivals().num_begun.load(), i);
    EXPECT_EQ(client->arrivals().is_busy.load(), 0u);
  }
}

TEST_F(ExpectedWorkOnTwoDevicesTest, WhereItHasNoPrecedenceNobodyListens) {
  executor_->TakePrecedence(0b10);
  const auto client = Connect();
  ASSERT_EQ(Open(*client), 0u);
  const auto channel = client->OpenChannel();
  const uint64_t first = LoadKernel(*channel, "kernel");
  const uint64_t second = LoadKernel(*channel, "kernel", nullptr, 2, ".version 8.0\n.target sm_80\n", 1);
  const auto is_awaited = [&] { return client->arrivals().is_awaited.load() == 1; };
  channel->Post(Op::kLaunch, LaunchOf(first, shm::kLegacyStream), 0);
  ASSERT_EQ(channel->Call(Op::kSynchronizeContext, {}, 0).result, 0u);
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_FALSE(is_awaited());
  channel->Post(Op::kLaunch, LaunchOf(second, shm::kLegacyStream), 1);
  ASSERT_EQ(channel->Call(Op::kSynchronizeContext, {}, 1).result, 0u);
  EXPECT_TRUE(Becomes(is_awaited));
}

TEST_F(ExpectedWorkOnTwoDevicesTest, TheExecutorKnowsOnWhichDevicesItsProgramsHaveWorked) {
  const auto client = Connect();
  const auto channel = client->OpenChannel();
  Allocate(*channel, 4096, 0);
  const uint64_t kernel = LoadKernel(*channel, "kernel", nullptr, 1, ".version 8.0\n.target sm_80\n", 1);
  EXPECT_EQ(executor_->used_devices(), 0u) << "a context is no work";
  EXPECT_EQ(num_told_, 0);
  for (int i = 0; i < 3; ++i) {
    channel->Post(Op::kLaunch, LaunchOf(kernel, shm::kLegacyStream), 1);
    ASSERT_EQ(channel->Call(Op::kSynchronizeContext, {}, 1).result, 0u);
  }
  EXPECT_EQ(executor_->used_devices(), 0b10u);
  EXPECT_EQ(num_told_, 1);
  client->Hangup();
  WaitForEnds(1);
  EXPECT_EQ(executor_->used_devices(), 0b10u) << "its programs come and go";
}

TEST_F(ExpectedWorkTest, WithoutPrecedenceNobodyListens) {
  const auto client = Connect();
  ASSERT_EQ(Open(*client), 0u);
  Expect(*client, NowNs() + 1'000'000, NowNs() + 2'000'000);
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(client->arrivals().is_awaited.load(), 0u);
  EXPECT_EQ(Figure("hints_announced"), 0u);
}

TEST_F(ExpectedWorkTest, WhatDoesNotComeIsCounted) {
  executor_->TakePrecedence(1);
  const auto client = Connect();
  ASSERT_EQ(Open(*client), 0u);
  ASSERT_TRUE(Becomes([&] { return client->arrivals().is_awaited.load() == 1; }));
  // A machine may be so busy that the time is over when it is looked at.
  EXPECT_TRUE(Becomes([&] {
    Expect(*client, NowNs() + 3'000'000, NowNs() + 4'000'000);
    std::this_thread::sleep_for(milliseconds(10));
    return Figure("hints_false") > 0;
  }));
  EXPECT_EQ(Figure("hints_hit"), 0u);
}

// Each word at any time, as often as there is time.
TEST_F(ExpectedWorkTest, AnythingMayBeInThePage) {
  executor_->TakePrecedence(1);
  const auto client = Connect();
  ASSERT_EQ(Open(*client), 0u);
  std::atomic<bool> is_over = false;
  std::thread hostile([&] {
    std::mt19937_64 random(1);
    shm::ArrivalPage& page = client->arrivals();
    while (!is_over) {
      const uint64_t word = random() >> random() % 64;
      switch (random() % 7) {
        case 0:
          page.is_awaited = static_cast<uint32_t>(word);
          break;
        case 1:
          page.num_begun = word;
          break;
        case 2:
          page.num_declared = static_cast<uint32_t>(word);
          break;
        default:
          Expect(*client, random() % 2 == 0 ? word : NowNs() + word % 3'000'000, random());
      }
    }
  });
  const auto other = Connect();
  const auto channel = other->OpenChannel();
  const uint64_t kernel = LoadKernel(*channel, "kernel");
  const auto until = steady_clock::now() + milliseconds(300);
  while (steady_clock::now() < until) {
    channel->Post(Op::kLaunch, LaunchOf(kernel, shm::kLegacyStream));
    ASSERT_EQ(channel->Call(Op::kSynchronizeContext).result, 0u);
  }
  is_over = true;
  hostile.join();
  EXPECT_FALSE(client->IsOver());
  client->Hangup();
  WaitForEnds(1);
}

TEST_F(ExpectedWorkTest, ASessionEndsInTheMiddleOfANotice) {
  executor_->TakePrecedence(1);
  for (size_t i = 1; i <= 20; ++i) {
    const auto client = Connect();
    ASSERT_EQ(Open(*client), 0u);
    Expect(*client, NowNs() + 500'000, NowNs() + 900'000);
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(600));
    client->Hangup();
    WaitForEnds(i);
  }
}

}  // namespace
}  // namespace tally::fakes
