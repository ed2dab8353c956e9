// What a session's window holds, and who issues it.
#include "server/executor/session/session_window.h"

#include <cstdlib>
#include <utility>

#include "tests/server/executor/session/session_window_fixture.h"

namespace tally::fakes {
namespace {

constexpr uint32_t kSecondDevice = 1;  // and its context

TEST_F(SessionWindowTest, AnyOtherRequestComesBehindWhatIsHeld) {
  HoldBack();
  channel_->Post(Op::kLaunch, Put(1, 7));
  Ask(*channel_, Op::kCopy, CopyOf(word_));
  LetGo();
  EXPECT_EQ(AwaitWord(*channel_), 7u);
  EXPECT_EQ(Figure("window_held"), 1u);
  EXPECT_EQ(Batches(WindowEnd::kRequest), 1u);

  HoldBack();
  channel_->Post(Op::kLaunch, Put(1, 1));
  Ask(*other_channel_, Op::kFree, Payload().PutWord(word_));
  LetGo();
  EXPECT_EQ(other_channel_->Await().result, 0u);
  EXPECT_EQ(channel_->Call(Op::kSynchronizeContext).result, 0u) << "the software GPU tells of a use after that";
  EXPECT_EQ(AsyncError(), 0u);
  EXPECT_EQ(Batches(), 2u);
}

TEST_F(SessionWindowTest, AnIdleChannelIssuesWhatIsHeld) {
  channel_->Post(Op::kLaunch, Put(1, 7));
  EXPECT_TRUE(AwaitIdleBatches(1));
  EXPECT_EQ(Read(word_), 7u);
  EXPECT_EQ(Batches(), 1u);
}

TEST_F(SessionWindowTest, LaunchesOfAnotherStreamAreHeldApart) {
  const uint64_t stream = CreateStream(CU_STREAM_NON_BLOCKING);
  const uint64_t other_word = NewWord();
  HoldBack();
  channel_->Post(Op::kLaunch, Put(1, 7, stream));
  channel_->Post(Op::kLaunch, PutAt(kernel_, other_word, 1, 8));
  Ask(*channel_, Op::kSynchronizeContext);
  LetGo();
  EXPECT_EQ(channel_->Await().result, 0u);
  EXPECT_EQ(Figure("window_held"), 2u);
  EXPECT_EQ(Batches(WindowEnd::kRequest), 2u);
  EXPECT_EQ(Read(word_), 7u);
  EXPECT_EQ(Read(other_word), 8u);
}

// Two threads call a stream by one name: it is two.
TEST_F(SessionWindowTest, LaunchesOfAnotherThreadAreHeldApart) {
  constexpr uint64_t kRounds = 20;
  const uint64_t other_word = NewWord();
  for (uint64_t i = 0; i < kRounds; ++i) {
    HoldBack();
    channel_->Post(Op::kLaunch, Put(1, 1, kPerThreadStream));
    other_channel_->Post(Op::kLaunch, PutAt(kernel_, other_word, 1, 2, kPerThreadStream));
    Ask(*other_channel_, Op::kSynchronizeContext);
    LetGo();
    EXPECT_EQ(other_channel_->Await().result, 0u);
  }
  EXPECT_EQ(Figure("window_held"), 2 * kRounds);
  EXPECT_EQ(Batches(), 2 * kRounds);
  EXPECT_EQ(Read(word_), kRounds);
  EXPECT_EQ(Read(other_word), 2 * kRounds);
}

// Launches of one device are issued by a request that is for another one, which then goes on there.
TEST_F(SessionWindowTest, LaunchesOfAnotherDeviceAreHeldApart) {
  const uint64_t far_kernel = LoadKernel(*channel_, "put", nullptr, 2, kPut, kSecondDevice);
  const uint64_t far_word = NewWord(kSecondDevice);
  ASSERT_NE(far_kernel, 0u);
  for (uint32_t i = 0; i < 3; ++i) {
    HoldBack();
    for (int j = 0; j < 2; ++j) channel_->Post(Op::kLaunch, Put(1, 1));
    for (int j = 0; j < 2; ++j) {
      channel_->Post(Op::kLaunch, PutAt(far_kernel, far_word, 1, 1), kSecondDevice);
    }
    channel_->Post(Op::kLaunch, Put(1, 1));
    Ask(*channel_, Op::kLaunch, PutAt(far_kernel, far_word, 1, 1), kSecondDevice);
    LetGo();
    EXPECT_EQ(channel_->Await().result, 0u);
    EXPECT_EQ(Batches(WindowEnd::kRequest), 3 * (i + 1));
  }
  EXPECT_EQ(AsyncError(), 0u);
  EXPECT_EQ(Figure("window_shapes"), 2u) << "of each device";
  EXPECT_EQ(Read(far_word, kSecondDevice), 9u);
  EXPECT_EQ(Read(word_), 9u);
}

// A stream waits for all that was launched before it, so that must have been issued when the order is made.
TEST_F(SessionWindowTest, StreamsThatAreOrderedWaitForWhatIsHeld) {
  const uint64_t blocking = CreateStream(CU_STREAM_DEFAULT);
  uint32_t expected = 0;
  HoldBack();
  for (uint32_t i = 0; i < 20; ++i) {
    channel_->Post(Op::kLaunch, Put(3, i, blocking));
    channel_->Post(Op::kLaunch, Put(5, 1, kLegacyStream));
    expected = (expected * 3 + i) * 5 + 1;
  }
  Ask(*channel_, Op::kSynchronizeContext);
  LetGo();
  EXPECT_EQ(channel_->Await().result, 0u);
  EXPECT_EQ(Figure("window_held"), 40u);
  EXPECT_EQ(Read(word_), expected);
}

TEST_F(SessionWindowTest, ALaunchThatWantsAReplyIsNotHeld) {
  HoldBack();
  channel_->Post(Op::kLaunch, Put(1, 7));
  Ask(*channel_, Op::kLaunch, Put(10, 0));
  LetGo();
  EXPECT_EQ(channel_->Await().result, 0u);
  EXPECT_EQ(Figure("window_held"), 1u);
  EXPECT_EQ(Batches(WindowEnd::kRequest), 1u);
  EXPECT_EQ(Read(word_), 70u);
  EXPECT_EQ(channel_->Call(Op::kLaunch, Refused()).result, static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE));
  EXPECT_EQ(AsyncError(), 0u) << "its own answer";
}

TEST_F(SessionWindowTest, ALaunchThatIsCapturedIsNotHeld) {
  const uint64_t stream = CreateStream(CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(channel_->Call(Op::kBeginCapture, Payload().Put(shm::BeginCapture{stream, 0, 0, 0, 0, 0})).result, 0u);
  channel_->Post(Op::kLaunch, Put(1, 7, stream));
  EXPECT_NE(channel_->Call(Op::kEndCapture, Payload().PutWord(stream)).Get<uint64_t>(), 0u);
  EXPECT_EQ(Figure("window_held"), 0u);
  EXPECT_EQ(AsyncError(), 0u);
  EXPECT_EQ(Read(word_), 0u) << "nothing has run";
}

TEST_F(SessionWindowTest, ARequestTellsTheFailureOfWhatWasHeldOnceAndNotAsItsOwn) {
  HoldBack();
  channel_->Post(Op::kLaunch, Refused());
  Ask(*channel_, Op::kSynchronizeContext);
  Ask(*channel_, Op::kSynchronizeContext);
  LetGo();
  EXPECT_EQ(channel_->Await().result, 0u);
  EXPECT_EQ(AsyncError(), static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE));
  EXPECT_EQ(channel_->Await().result, 0u);
  EXPECT_EQ(channel_->Call(Op::kSynchronizeContext).result, 0u);
  EXPECT_EQ(Figure("failed_calls"), 1u);
}

TEST_F(SessionWindowTest, AnIdleChannelTellsTheFailureOfWhatWasHeld) {
  channel_->Post(Op::kLaunch, Refused());
  ASSERT_TRUE(AwaitIdleBatches(1));
  // Whoever comes next finds it, though the channel itself does nothing more.
  EXPECT_EQ(other_channel_->Call(Op::kSynchronizeContext).result, 0u);
  EXPECT_EQ(AsyncError(), static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE));
  EXPECT_EQ(Figure("failed_calls"), 1u);
}

// The program may have asked for the error in between: it must not come again.
TEST_F(SessionWindowTest, AFailureThatALaunchHasToldIsNotToldByTheIdleChannelAgain) {
  const uint64_t stream = CreateStream(CU_STREAM_NON_BLOCKING);
  HoldBack();
  channel_->Post(Op::kLaunch, Refused());
  channel_->Post(Op::kLaunch, Put(1, 7, stream));
  LetGo();
  ASSERT_TRUE(AwaitIdleBatches(1));
  EXPECT_EQ(Batches(), 2u);
  EXPECT_EQ(channel_->Call(Op::kSynchronizeContext).result, 0u);
  EXPECT_EQ(AsyncError(), static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE));
  EXPECT_EQ(Figure("failed_calls"), 1u);
}

TEST_F(SessionWindowTest, ASessionThatKeepsItsKernelsHoldsNothing) {
  server::SessionIdentity identity;
  identity.window = WindowMode::kOn;
  identity.keeps_kernels = true;
  Open(std::move(identity));
  IssueShape();
  EXPECT_EQ(Figure("window_held"), 0u);
  EXPECT_EQ(Read(word_), 2u);
}

TEST_F(SessionWindowTest, AShadowHoldsNothing) {
  server::SessionIdentity identity;
  identity.window = WindowMode::kShadow;
  Open(std::move(identity));
  IssueShape();
  EXPECT_EQ(Figure("window_held"), 0u);
  EXPECT_EQ(Figure("window_work"), 2u);
  EXPECT_EQ(Figure("window_chain"), 2u);
  EXPECT_EQ(Read(word_), 2u);
}

// Kernels that may have to be stopped block by block: a graph cannot be.
class SessionWindowOfStoppedKernelsTest : public SessionWindowTest {
 protected:
  void SetUp() override {
    ::setenv("TALLY_FORCE_FORM", "original", 1);
    SessionWindowTest::SetUp();
    ::unsetenv("TALLY_FORCE_FORM");
  }
};

TEST_F(SessionWindowOfStoppedKernelsTest, OnlyHighPriorityLaunchesAreHeld) {
  IssueShape();
  EXPECT_EQ(Figure("window_held"), 0u);
  server::SessionIdentity identity;
  identity.window = WindowMode::kOn;
  identity.priority_class = shm::PriorityClass::kHighPriority;
  Open(std::move(identity));
  IssueShape();
  EXPECT_EQ(Figure("window_held"), 2u);
  EXPECT_EQ(Read(word_), 2u);
}

// For all that the executor knows.
class SessionWindowOnAGpuTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    config.driver_table_for_testing = nullptr;
    config.driver.choice = control::DriverChoice::kCuda;
    config.driver.cuda_path = TALLY_SIM_DRIVER_PATH;
  }
};

// What launches touch is read in it.
TEST_F(SessionWindowOnAGpuTest, OnlyAWindowAsksForPtx) {
  for (const auto mode : {WindowMode::kOff, WindowMode::kShadow, WindowMode::kOn}) {
    server::SessionIdentity identity;
    identity.window = mode;
    const auto client = Connect(std::move(identity));
    ASSERT_NE(client, nullptr);
    EXPECT_EQ(client->wants_ptx(), mode != WindowMode::kOff);
  }
}

}  // namespace
}  // namespace tally::fakes
