// What a launch that is held back means for all that comes behind it, on the software GPU: docs/deferred-launches.md.
//
// High-priority work that the test begins and ends keeps launches at the gate.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "proto/driver/generated/wire_ops.h"
#include "server/executor/dispatch/activity_page.h"
#include "tests/server/executor/fakes/executor_fixture.h"
#include "tests/server/executor/fakes/put_kernel.h"
#include "tests/support/temporary_directory.h"

namespace tally::fakes {
namespace {

using shm::kLegacyStream;
using shm::kPerThreadStream;
using shm::Op;

constexpr uint64_t kPage = 4096;
constexpr uint32_t kAddress = static_cast<uint32_t>(shm::Place::kAddress);
constexpr uint32_t kArena = static_cast<uint32_t>(shm::Place::kArena);

class HeldLaunchesTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    config.driver_table_for_testing = nullptr;
    config.driver.choice = control::DriverChoice::kSim;
    config.driver.sim_path = TALLY_SIM_DRIVER_PATH;
    config.activity_path = directory_.path() + "/activity";
  }
  void SetUp() override {
    ExecutorFixture::SetUp();
    auto page = server::ActivityPage::Open(directory_.path() + "/activity");
    ASSERT_TRUE(page) << page.error().ToString();
    high_ = std::move(*page);
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
    channel_ = client_->OpenChannel();
    other_channel_ = client_->OpenChannel();
    ASSERT_TRUE(channel_ != nullptr && other_channel_ != nullptr);
    kernel_ = LoadKernel(*channel_, "put", &module_, 1, kPut);
    ASSERT_NE(kernel_, 0u);
    word_ = Allocate(*channel_, kWordBytes);
    channel_->Post(Op::kFill, Payload().Put(shm::Fill{word_, 0, 1, 1, kLegacyStream, 0, kWordBytes}));
    ASSERT_EQ(Synchronize(), 0u);
  }
  void TearDown() override {
    if (has_begun_) EndHighPriorityWork();
    ExecutorFixture::TearDown();
  }

  void BeginHighPriorityWork() {
    ASSERT_TRUE(high_->ClaimSlot().ok());
    has_begun_ = true;
    high_->SetBusy(0);
  }
  void EndHighPriorityWork() { high_->SetIdle(0, {}); }

  Payload Put(uint32_t factor, uint32_t addend, uint64_t stream = kLegacyStream, uint64_t word = 0) const {
    std::string parameters(16, '\0');
    if (word == 0) word = word_;
    std::memcpy(parameters.data(), &word, sizeof(word));
    std::memcpy(parameters.data() + 8, &factor, sizeof(factor));
    std::memcpy(parameters.data() + 12, &addend, sizeof(addend));
    return LaunchOf(kernel_, stream, parameters);
  }
  // Of the session: requests that have been carried out, launches that are over.
  uint64_t NumRequests() { return executor_->Snapshot().at(0).figures["requests"]; }
  uint64_t NumLaunches() { return executor_->Snapshot().at(0).figures["kernel_launches"]; }
  // The launch is at the gate when this returns, with its session's sequencer.
  void PostHeld(const Payload& launch) {
    BeginHighPriorityWork();
    const uint64_t before = NumRequests();
    channel_->Post(Op::kLaunch, launch);
    while (NumRequests() == before) std::this_thread::yield();
    ASSERT_EQ(NumLaunches(), 0u);
  }
  // Does it on a thread of its own. It must not be over before the high-priority work is.
  std::future<uint32_t> Behind(const std::function<uint32_t()>& call) {
    auto answer = std::async(std::launch::async, call);
    EXPECT_EQ(answer.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout) << "it overtook the launch";
    EXPECT_EQ(NumLaunches(), 0u);
    return answer;
  }
  uint32_t Synchronize() { return channel_->Call(Op::kSynchronizeContext).result; }
  uint32_t AsyncError() { return client_->header().async_error.load(); }
  uint32_t Read(ScriptedChannel& channel) {
    const shm::Copy down{0, word_, kWordBytes, kLegacyStream, kArena, kAddress};
    EXPECT_EQ(channel.Call(Op::kCopy, Payload().Put(down)).result, 0u);
    uint32_t value = 0;
    std::memcpy(&value, channel.arena(), sizeof(value));
    return value;
  }
  uint64_t CreateStream(uint32_t flags) {
    return channel_->Call(Op::kCreateStream, Payload().Put(shm::CreateStream{flags, 0})).Get<uint64_t>();
  }
  // A page that kernels can write to, at *address, as the client sees it: it outlives the session.
  const volatile uint32_t* PinnedPage(uint64_t* address) {
    const auto pinned = client_->Request(shm::SessionRequestKind::kAllocateHost, kPage, 0, 0, &pinned_fd_);
    if (!pinned || pinned->cuda_result != 0) return nullptr;
    *address = pinned->value[0];
    auto mapping = MappedRegion::Map(pinned_fd_.get(), kPage);
    if (!mapping) return nullptr;
    pinned_ = std::move(*mapping);
    return reinterpret_cast<const volatile uint32_t*>(pinned_.data());
  }

  const TemporaryDirectory directory_;
  std::unique_ptr<server::ActivityPage> high_;
  bool has_begun_ = false;
  std::unique_ptr<ScriptedClient> client_;
  std::unique_ptr<ScriptedChannel> channel_, other_channel_;
  UniqueFd pinned_fd_;
  MappedRegion pinned_;
  uint64_t module_ = 0, kernel_ = 0, word_ = 0;
};

// What waits in admission is not on the GPU, and its session is not charged for it.
TEST_F(HeldLaunchesTest, ItIsNoBusyTime) {
  PostHeld(Put(1, 1));
  const uint64_t before = executor_->Snapshot().at(0).figures["busy_ns"];
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(executor_->Snapshot().at(0).figures["busy_ns"], before);
  EndHighPriorityWork();
  EXPECT_EQ(Synchronize(), 0u);
  EXPECT_GT(executor_->Snapshot().at(0).figures["busy_ns"], before);
}

TEST_F(HeldLaunchesTest, ItsErrorAndThoseBehindItAreKnownOnceItWasMade) {
  Payload too_much = Put(1, 1);
  auto* const record = reinterpret_cast<shm::Launch*>(const_cast<std::byte*>(too_much.bytes().data()));
  record->shared_bytes = 1u << 30;
  PostHeld(too_much);
  channel_->Post(Op::kLaunch, LaunchOf(shm::MakeHandle(shm::HandleKind::kFunction, 1, true, 77), kLegacyStream));
  EXPECT_EQ(AsyncError(), 0u);
  EndHighPriorityWork();
  EXPECT_EQ(Synchronize(), 0u);
  EXPECT_EQ(AsyncError(), static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE)) << "the first one counts";
}

TEST_F(HeldLaunchesTest, AnEventBehindItIsNotSaidToHaveHappened) {
  ASSERT_EQ(channel_->Call(Op::kCreateEvent, Payload().Put(shm::CreateEvent{kFirstEvent, 0, 0})).result, 0u);
  PostHeld(Put(1, 7));
  channel_->Publish(kOp_cuEventRecord, Payload().PutWord(kFirstEvent).PutWord(kLegacyStream), 0, 0);
  auto query =
      Behind([&] { return other_channel_->CallNumber(kOp_cuEventQuery, Payload().PutWord(kFirstEvent)).result; });
  EndHighPriorityWork();
  const uint32_t queried = query.get();
  EXPECT_TRUE(queried == CUDA_SUCCESS || queried == CUDA_ERROR_NOT_READY) << queried;
  EXPECT_EQ(other_channel_->Call(Op::kSynchronizeEvent, Payload().PutWord(kFirstEvent)).result, 0u);
  EXPECT_EQ(Read(*other_channel_), 7u);
}

TEST_F(HeldLaunchesTest, CopiesAndFillsOfItsStreamComeBehindIt) {
  PostHeld(Put(1, 7));
  auto read = Behind([&] { return Read(*other_channel_); });
  EndHighPriorityWork();
  EXPECT_EQ(read.get(), 7u);
}

TEST_F(HeldLaunchesTest, TheLegacyStreamWaitsForOneOfABlockingStream) {
  const uint64_t blocking = CreateStream(CU_STREAM_DEFAULT);
  PostHeld(Put(1, 1, blocking));
  other_channel_->Post(Op::kLaunch, Put(10, 0, kLegacyStream));
  channel_->Post(Op::kLaunch, Put(1, 5, blocking));
  EXPECT_EQ(NumLaunches(), 0u);
  EndHighPriorityWork();
  EXPECT_EQ(Synchronize(), 0u);
  EXPECT_EQ(Read(*channel_), 15u);
}

TEST_F(HeldLaunchesTest, APerThreadStreamOfAnotherThreadWaitsForOneOfTheLegacyStream) {
  PostHeld(Put(1, 1, kLegacyStream));
  other_channel_->Post(Op::kLaunch, Put(10, 0, kPerThreadStream));
  EndHighPriorityWork();
  EXPECT_EQ(other_channel_->Call(Op::kSynchronizeContext).result, 0u);
  EXPECT_EQ(Read(*channel_), 10u);
}

TEST_F(HeldLaunchesTest, OneThatIsCapturedIsNotHeld) {
  const uint64_t stream = CreateStream(CU_STREAM_NON_BLOCKING);
  BeginHighPriorityWork();
  ASSERT_EQ(channel_->Call(Op::kBeginCapture, Payload().Put(shm::BeginCapture{stream, 0, 0, 0, 0, 0})).result, 0u);
  channel_->Post(Op::kLaunch, Put(1, 7, stream));
  const Answer ended = channel_->Call(Op::kEndCapture, Payload().PutWord(stream));
  EXPECT_EQ(ended.result, 0u);
  EXPECT_NE(ended.Get<uint64_t>(), 0u);
  EXPECT_EQ(NumLaunches(), 1u);
  EXPECT_EQ(AsyncError(), 0u);
  EndHighPriorityWork();
  EXPECT_EQ(Read(*channel_), 0u) << "nothing has run";
}

TEST_F(HeldLaunchesTest, AHostFunctionBehindItRunsBehindIt) {
  auto callbacks = client_->OpenChannel();
  ASSERT_NE(callbacks, nullptr);
  std::atomic<uint64_t> launches_then{0};
  std::thread runner([&] {
    const Answer first = callbacks->Call(Op::kAwaitCallback, Payload().PutWord(0));
    launches_then = NumLaunches();
    if (first.arrived) callbacks->Call(Op::kAwaitCallback, Payload().PutWord(first.Get<uint64_t>()));
  });
  PostHeld(Put(1, 7));
  channel_->Post(Op::kLaunchHostFunction, Payload().Put(shm::LaunchHostFunction{kLegacyStream, 1, 0, 0}));
  auto synchronized = Behind([&] { return other_channel_->Call(Op::kSynchronizeContext).result; });
  EXPECT_EQ(launches_then, 0u);
  EndHighPriorityWork();
  EXPECT_EQ(synchronized.get(), 0u);
  EXPECT_EQ(launches_then, 1u);
  EXPECT_EQ(Read(*channel_), 7u);
  ASSERT_TRUE(executor_->Evict(1, "test").ok());
  runner.join();
}

TEST_F(HeldLaunchesTest, MemoryThatItUsesIsFreedBehindIt) {
  PostHeld(Put(1, 7));
  auto freed = Behind([&] { return other_channel_->Call(Op::kFree, Payload().PutWord(word_)).result; });
  EndHighPriorityWork();
  EXPECT_EQ(freed.get(), 0u);
  EXPECT_EQ(Synchronize(), 0u) << "the software GPU tells of a use after that";
  EXPECT_EQ(AsyncError(), 0u);
  EXPECT_EQ(NumLaunches(), 1u);
}

TEST_F(HeldLaunchesTest, ItsModuleIsUnloadedBehindIt) {
  PostHeld(Put(1, 7));
  other_channel_->Post(Op::kUnloadModule, Payload().PutWord(module_));
  auto read = Behind([&] { return Read(*other_channel_); });
  EndHighPriorityWork();
  EXPECT_EQ(read.get(), 7u);
  EXPECT_EQ(AsyncError(), 0u);
  channel_->Post(Op::kLaunch, Put(1, 1));
  EXPECT_EQ(Synchronize(), 0u);
  EXPECT_EQ(AsyncError(), static_cast<uint32_t>(CUDA_ERROR_INVALID_HANDLE)) << "it is gone";
}

// What it was in memory may be another module's by then.
TEST_F(HeldLaunchesTest, AKernelOfAnUnloadedModuleIsNoOthers) {
  channel_->Post(Op::kUnloadModule, Payload().PutWord(module_));
  ASSERT_NE(LoadKernel(*channel_, "put", &module_, 1, kPut), kernel_);
  channel_->Post(Op::kLaunch, Put(1, 7));
  EXPECT_EQ(Synchronize(), 0u);
  EXPECT_EQ(AsyncError(), static_cast<uint32_t>(CUDA_ERROR_INVALID_HANDLE));
  EXPECT_EQ(Read(*channel_), 0u);
}

TEST_F(HeldLaunchesTest, WhatIsPendingBehindItIsBoundedByTheRing) {
  const uint64_t record_bytes = sizeof(shm::RequestHeader) + Put(1, 1).bytes().size();
  const uint64_t ring_bytes = channel_->header().request_bytes;
  const uint64_t num_launches = 2 * ring_bytes / record_bytes;
  PostHeld(Put(1, 1));
  std::atomic<uint64_t> num_posted{0};
  std::thread program([&] {
    for (; num_posted < num_launches; ++num_posted) channel_->Post(Op::kLaunch, Put(1, 1));
  });
  while (num_posted < ring_bytes / record_bytes / 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(num_posted * record_bytes, ring_bytes);
  EXPECT_EQ(NumLaunches(), 0u);
  EndHighPriorityWork();
  program.join();
  EXPECT_EQ(Synchronize(), 0u);
  EXPECT_EQ(Read(*channel_), num_launches + 1);
}

TEST_F(HeldLaunchesTest, AResetOfTheDeviceComesBehindIt) {
  uint64_t page = 0;
  const volatile uint32_t* const value = PinnedPage(&page);
  ASSERT_NE(value, nullptr);
  PostHeld(Put(1, 7, kLegacyStream, page));
  auto reset = Behind([&] {
    return other_channel_->Call(Op::kCloseContext, Payload().Put(shm::CloseContext{0, 1}), shm::kNoContext).result;
  });
  EndHighPriorityWork();
  EXPECT_EQ(reset.get(), 0u);
  EXPECT_EQ(*value, 7u) << "the reset did not wait for it";
  EXPECT_EQ(AsyncError(), 0u);
  EXPECT_EQ(Synchronize(), 0u) << "the context opens again";
}

TEST_F(HeldLaunchesTest, OfAClientThatIsGoneItIsNotMade) {
  uint64_t page = 0;
  const volatile uint32_t* const value = PinnedPage(&page);
  ASSERT_NE(value, nullptr);
  PostHeld(Put(1, 7, kLegacyStream, page));
  channel_->Post(Op::kLaunch, Put(1, 8, kLegacyStream, page));
  auto witness = Connect();
  ASSERT_NE(witness, nullptr);
  client_->Hangup();  // as the kernel does for a client that was killed
  WaitForEnds(1);     // although the high-priority work goes on
  EXPECT_FALSE(ends().front().evicted);
  EndHighPriorityWork();
  auto channel = witness->OpenChannel();
  ASSERT_NE(channel, nullptr);
  EXPECT_EQ(channel->Call(Op::kSynchronizeContext).result, 0u);
  EXPECT_EQ(*value, 0u);
}

TEST_F(HeldLaunchesTest, AnotherSessionIsNotKept) {
  PostHeld(Put(1, 7));
  auto neighbour = Connect();
  ASSERT_NE(neighbour, nullptr);
  auto channel = neighbour->OpenChannel();
  EXPECT_NE(Allocate(*channel, kWordBytes), 0u);
  EXPECT_EQ(channel->Call(Op::kSynchronizeContext).result, 0u);
  EXPECT_EQ(NumLaunches(), 0u);
  EndHighPriorityWork();
  EXPECT_EQ(Synchronize(), 0u);
  EXPECT_EQ(Read(*channel_), 7u);
}

}  // namespace
}  // namespace tally::fakes
