// What a channel makes of records that the client library would not write, and of those that it seldom writes.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::Op;

constexpr uint64_t kLegacy = 1;
constexpr uint64_t kArenaBytes = uint64_t{shm::kArenaChunkBytes} * shm::kArenaChunks;
constexpr auto kAddress = static_cast<uint32_t>(shm::Place::kAddress);
constexpr auto kArena = static_cast<uint32_t>(shm::Place::kArena);
constexpr auto kInline = static_cast<uint32_t>(shm::Place::kInline);

class ChannelRecordsTest : public ExecutorFixture {
 protected:
  void SetUp() override {
    ExecutorFixture::SetUp();
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
    channel_ = client_->OpenChannel();
    ASSERT_NE(channel_, nullptr);
    memory_ = Allocate(*channel_, 2 * shm::kArenaChunkBytes);
    ASSERT_NE(memory_, 0u);
  }
  Answer Copy(const shm::Copy& copy) { return channel_->Call(Op::kCopy, Payload().Put(copy)); }

  std::unique_ptr<ScriptedClient> client_;
  std::unique_ptr<ScriptedChannel> channel_;
  uint64_t memory_ = 0;
};

TEST_F(ChannelRecordsTest, CopiesEndWithTheArena) {
  EXPECT_EQ(Copy({memory_, kArenaBytes - 16, 16, kLegacy, kAddress, kArena}).result, 0u);
  EXPECT_EQ(Copy({kArenaBytes - 16, memory_, 16, kLegacy, kArena, kAddress}).result, 0u);
  EXPECT_FALSE(Copy({memory_, kArenaBytes - 16, 17, kLegacy, kAddress, kArena}).arrived);
  WaitForEnds(1);
  EXPECT_NE(ends()[0].reason.find("copy beyond the arena"), std::string::npos) << ends()[0].reason;
}

TEST_F(ChannelRecordsTest, NothingIsCopiedIntoARecord) {
  const shm::Copy copy{0, memory_, 16, kLegacy, kInline, kAddress};
  EXPECT_FALSE(channel_->Call(Op::kCopy, Payload().Put(copy).PutWord(0).PutWord(0)).arrived);
  auto other = Connect();
  auto channel = other->OpenChannel();
  const shm::Copy without_bytes{0, Allocate(*channel, 16), 16, kLegacy, kInline, kAddress};
  EXPECT_FALSE(channel->Call(Op::kCopy, Payload().Put(without_bytes)).arrived);
  WaitForEnds(2);
  for (const server::SessionEnd& end : ends()) EXPECT_TRUE(end.evicted) << end.reason;
}

// Who waits for either of two chunks waits for the copy that uses both.
TEST_F(ChannelRecordsTest, ACopyAcrossTwoChunksIsInBoth) {
  const auto num_marks = [&](uint64_t offset) {
    driver_.TakeTrace();
    channel_->Post(Op::kCopy, Payload().Put(shm::Copy{memory_, offset, 16, kLegacy, kAddress, kArena}));
    EXPECT_EQ(channel_->Call(Op::kFence).result, 0u);
    const std::vector<std::string> trace = driver_.TakeTrace();
    return std::ranges::count_if(trace, [](const std::string& step) { return step.starts_with("record "); });
  };
  EXPECT_EQ(num_marks(0), 1);
  EXPECT_EQ(num_marks(shm::kArenaChunkBytes - 16), 1);
  EXPECT_EQ(num_marks(shm::kArenaChunkBytes - 15), 2);
}

TEST_F(ChannelRecordsTest, OnlyTheHostFunctionThatRunsCanBeFinished) {
  auto callbacks = client_->OpenChannel();
  channel_->Post(Op::kLaunchHostFunction, Payload().Put(shm::LaunchHostFunction{kLegacy, 41, 0, 0}));
  EXPECT_EQ(callbacks->Call(Op::kAwaitCallback, Payload().PutWord(0)).Get<uint64_t>(), 41u);
  EXPECT_FALSE(callbacks->Call(Op::kAwaitCallback, Payload().PutWord(42)).arrived);
  WaitForEnds(1);
  EXPECT_NE(ends()[0].reason.find("not running"), std::string::npos) << ends()[0].reason;
}

}  // namespace
}  // namespace tally::fakes
