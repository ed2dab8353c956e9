// What clients of one context can do to one another, on the software driver.
#include <sys/mman.h>
#include <unistd.h>

#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::Op;

constexpr uint64_t kBytes = 64 << 10;
constexpr uint64_t kLegacy = 1;

// say(n): printf("%d\n", n); linger(n): takes n rounds
constexpr const char* kPrints = R"(
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 retval) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 $text[4] = {37, 100, 10, 0};
.visible .entry say(.param .u32 number)
{
  .local .align 8 .b8 stack[8];
  .reg .b32 %r<3>;
  .reg .b64 %rd<5>;
  ld.param.u32 %r1, [number];
  mov.u64 %rd1, stack;
  cvta.local.u64 %rd2, %rd1;
  st.local.u32 [%rd1], %r1;
  mov.u64 %rd3, $text;
  cvta.global.u64 %rd4, %rd3;
  {
  .param .b64 param0;
  st.param.b64 [param0], %rd4;
  .param .b64 param1;
  st.param.b64 [param1], %rd2;
  .param .b32 retval0;
  call.uni (retval0), vprintf, (param0, param1);
  }
  ret;
}
.visible .entry linger(.param .u32 rounds)
{
  .reg .b32 %r<3>;
  .reg .pred %p<2>;
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, 0;
ROUND:
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p1, %r2, %r1;
  @%p1 bra ROUND;
  ret;
}
)";

shm::LaunchHostFunction HostFunction(uint64_t token) { return {kLegacy, token, 0, 0}; }

Payload Say(uint64_t kernel, uint32_t number) {
  return LaunchOf(kernel, kLegacy, std::string(reinterpret_cast<const char*>(&number), sizeof(number)));
}

std::string Fetch(ScriptedChannel& channel) {
  const Answer answer = channel.Call(Op::kFetchOutput);
  return {reinterpret_cast<const char*>(answer.payload.data()), answer.payload.size()};
}

class NeighboursTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    config.driver_table_for_testing = nullptr;
    config.driver.choice = control::DriverChoice::kSim;
    config.driver.sim_path = TALLY_SIM_DRIVER_PATH;
    config.capture_stdout = captures_stdout_;
    config.limits.host_function_timeout = timeout_;
    config.limits.host_function_patience = patience_;
  }
  bool captures_stdout_ = false;
  std::chrono::milliseconds timeout_{3'600'000};
  std::chrono::milliseconds patience_{50};
  // Where the executor has the memory of `file`, which the client has registered.
  static uint64_t Register(ScriptedClient& client, int file) {
    const shm::SessionRequest request{static_cast<uint32_t>(shm::SessionRequestKind::kRegisterHost), 0, {0, kBytes, 0}};
    if (!SendMessage(client.socket(), std::as_bytes(std::span(&request, 1)), std::span(&file, 1)).ok()) return 0;
    const auto message = ReceiveMessage(client.socket(), std::chrono::seconds(60));
    shm::SessionReply reply{};
    if (!message || message->bytes.size() != sizeof(reply)) return 0;
    std::memcpy(&reply, message->bytes.data(), sizeof(reply));
    return reply.cuda_result == 0 ? reply.value[0] : 0;
  }
};

TEST_F(NeighboursTest, AFileThatBecomesShorterEndsItsSessionAlone) {
  auto witness = Connect();
  auto witness_channel = witness->OpenChannel();
  const uint64_t cell = Allocate(*witness_channel, 8);
  ASSERT_NE(cell, 0u);
  auto client = Connect();
  auto channel = client->OpenChannel();
  const UniqueFd file(::memfd_create("tally-test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kBytes), 0);
  const uint64_t host = Register(*client, file.get());
  ASSERT_NE(host, 0u);
  const uint64_t device = Allocate(*channel, kBytes);
  const shm::Copy up{device, host, kBytes, 1, 0, 0};
  const auto copy_and_wait = [&] {
    channel->Post(Op::kCopy, Payload().Put(up));
    return channel->Call(Op::kSynchronizeContext);
  };
  EXPECT_EQ(copy_and_wait().result, 0u);
  ASSERT_EQ(::ftruncate(file.get(), 0), 0);
  EXPECT_FALSE(copy_and_wait().arrived);
  WaitForEnds(1);
  EXPECT_NE(ends()[0].reason.find("truncated a file"), std::string::npos) << ends()[0].reason;
  const shm::Copy down{0, cell, 8, 1, static_cast<uint32_t>(shm::Place::kArena), 0};
  EXPECT_EQ(witness_channel->Call(Op::kCopy, Payload().Put(down)).result, 0u);
  EXPECT_FALSE(executor_->faulted());
}

// The driver frees memory once everything in the context is done, the stream of the other session included.
TEST_F(NeighboursTest, WhoLeavesAHostFunctionUnrunDoesNotKeepOthersWaiting) {
  auto witness = Connect();
  auto witness_channel = witness->OpenChannel();
  const uint64_t memory = Allocate(*witness_channel, kBytes);
  auto client = Connect();
  auto channel = client->OpenChannel();
  channel->Post(Op::kLaunchHostFunction, Payload().Put(HostFunction(1)));
  ASSERT_EQ(channel->Call(Op::kMemoryAmount).result, 0u);
  EXPECT_EQ(witness_channel->Call(Op::kFree, Payload().PutWord(memory)).result, 0u);
  WaitForEnds(1);
  EXPECT_NE(ends()[0].reason.find("did not run a host function"), std::string::npos) << ends()[0].reason;
  EXPECT_NE(ends()[0].reason.find("another program"), std::string::npos) << ends()[0].reason;
  EXPECT_EQ(witness_channel->Call(Op::kMemoryAmount).result, 0u);
}

class ImpatientTest : public NeighboursTest {
 protected:
  ImpatientTest() { timeout_ = std::chrono::milliseconds(100); }
};

TEST_F(ImpatientTest, WhoLeavesAHostFunctionUnrunIsEvictedAfterATime) {
  for (const bool was_fetched : {false, true}) {
    auto client = Connect();
    auto channel = client->OpenChannel();
    auto callbacks = client->OpenChannel();
    channel->Post(Op::kLaunchHostFunction, Payload().Put(HostFunction(1)));
    if (was_fetched) {
      EXPECT_EQ(callbacks->Call(Op::kAwaitCallback, Payload().PutWord(0)).Get<uint64_t>(), 1u);
    }
    client->WaitUntilOver();
  }
  WaitForEnds(2);
  for (const server::SessionEnd& end : ends()) {
    EXPECT_TRUE(end.evicted);
    EXPECT_NE(end.reason.find("did not run a host function"), std::string::npos) << end.reason;
  }
}

class PatientTest : public NeighboursTest {
 protected:
  PatientTest() { patience_ = timeout_; }
  // Of the session that came last, once its client is known to be gone and `is_so` says yes, or after a minute.
  template <typename IsSo>
  server::SessionSnapshot OfTheDeparted(IsSo is_so) {
    for (int looks = 0;; ++looks) {
      const auto snapshots = executor_->Snapshot();
      if (snapshots.empty()) return {};
      if ((snapshots.back().has_departed && is_so(snapshots.back())) || looks == 60'000) return snapshots.back();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
};

// Work that does not end costs all programs of a context their executor, so it must be the departed one's own.
TEST_F(PatientTest, WhoHasOnlyMemoryLeftToGiveBackHasNoWork) {
  auto neighbour = Connect();
  auto neighbour_channel = neighbour->OpenChannel();
  auto callbacks = neighbour->OpenChannel();
  auto client = Connect();
  auto channel = client->OpenChannel();
  ASSERT_NE(Allocate(*channel, kBytes), 0u);
  neighbour_channel->Post(Op::kLaunchHostFunction, Payload().Put(HostFunction(1)));
  ASSERT_EQ(neighbour_channel->Call(Op::kMemoryAmount).result, 0u);
  client->Hangup();
  const auto departed = OfTheDeparted([](const auto& snapshot) { return !snapshot.is_draining; });
  EXPECT_TRUE(departed.has_departed);
  EXPECT_FALSE(departed.is_draining);
  EXPECT_EQ(executor_->Snapshot().size(), 2u);
  EXPECT_TRUE(ends().empty()) << "its memory is given back when the neighbour rests, as the driver wants it";
  neighbour->Hangup();
  WaitForEnds(2);
}

TEST_F(PatientTest, WhoseKernelRunsHasWork) {
  auto client = Connect();
  auto channel = client->OpenChannel();
  const uint64_t kernel = LoadKernel(*channel, "linger", nullptr, 1, kPrints);
  ASSERT_NE(kernel, 0u);
  const uint32_t rounds = 50'000'000;
  channel->Post(Op::kLaunch,
                LaunchOf(kernel, kLegacy, std::string(reinterpret_cast<const char*>(&rounds), sizeof(rounds))));
  ASSERT_EQ(channel->Call(Op::kMemoryAmount).result, 0u);
  client->Hangup();
  EXPECT_TRUE(OfTheDeparted([](const auto&) { return true; }).is_draining);
  WaitForEnds(1);
}

class PrintingNeighboursTest : public NeighboursTest {
 protected:
  PrintingNeighboursTest() { captures_stdout_ = true; }
  static uint64_t LoadSay(ScriptedChannel& channel) { return LoadKernel(channel, "say", nullptr, 1, kPrints); }
};

TEST_F(PrintingNeighboursTest, NobodyGetsWhatAnothersKernelsPrint) {
  std::string own, of_first, of_second, of_silent, alone_again;
  {
    auto silent = Connect();
    auto silent_channel = silent->OpenChannel();
    auto first = Connect();
    auto first_channel = first->OpenChannel();
    const uint64_t first_kernel = LoadSay(*first_channel);
    ASSERT_NE(first_kernel, 0u);
    first_channel->Post(Op::kLaunch, Say(first_kernel, 111));
    // Whoever waits makes the driver print.
    EXPECT_EQ(silent_channel->Call(Op::kFree, Payload().PutWord(Allocate(*silent_channel, 8))).result, 0u);
    EXPECT_EQ(first_channel->Call(Op::kSynchronizeContext).result, 0u);
    own = Fetch(*first_channel);
    of_silent = Fetch(*silent_channel);

    auto second = Connect();
    auto second_channel = second->OpenChannel();
    const uint64_t second_kernel = LoadSay(*second_channel);
    first_channel->Post(Op::kLaunch, Say(first_kernel, 222));
    EXPECT_EQ(first_channel->Call(Op::kMemoryAmount).result, 0u);
    second_channel->Post(Op::kLaunch, Say(second_kernel, 333));
    EXPECT_EQ(second_channel->Call(Op::kFree, Payload().PutWord(Allocate(*second_channel, 8))).result, 0u);
    EXPECT_EQ(second_channel->Call(Op::kSynchronizeContext).result, 0u);
    EXPECT_EQ(first_channel->Call(Op::kSynchronizeContext).result, 0u);
    of_first = Fetch(*first_channel);
    of_second = Fetch(*second_channel);

    first->Hangup();
    WaitForEnds(1);
    second_channel->Post(Op::kLaunch, Say(second_kernel, 444));
    EXPECT_EQ(second_channel->Call(Op::kSynchronizeContext).result, 0u);
    alone_again = Fetch(*second_channel);
  }
  executor_.reset();  // gives stdout back: what gtest says would be taken for the kernels'
  EXPECT_EQ(own, "111\n");
  EXPECT_EQ(of_silent, "");
  for (const std::string& refused : {of_first, of_second}) {
    EXPECT_NE(refused.find("device printf is refused"), std::string::npos) << refused;
    EXPECT_EQ(refused.find("222"), std::string::npos) << refused;
    EXPECT_EQ(refused.find("333"), std::string::npos) << refused;
  }
  EXPECT_EQ(alone_again, "444\n");
}

// A session ends when its work does; until then it has code that may print, though its program is gone.
TEST_F(PrintingNeighboursTest, ProgramsThatFollowOneAnotherAreNotSeveral) {
  std::vector<std::string> printed;
  for (uint32_t i = 0; i < 3; ++i) {
    auto client = Connect();
    auto channel = client->OpenChannel();
    channel->Post(Op::kLaunch, Say(LoadSay(*channel), i));
    EXPECT_EQ(channel->Call(Op::kSynchronizeContext).result, 0u);
    printed.push_back(Fetch(*channel));
    channel->Post(Op::kLaunch, Say(LoadKernel(*channel, "linger", nullptr, 1, kPrints), 1'000'000));
    EXPECT_EQ(channel->Call(Op::kMemoryAmount).result, 0u);
    client->Hangup();
  }
  executor_.reset();
  for (uint32_t i = 0; i < printed.size(); ++i) EXPECT_EQ(printed[i], std::to_string(i) + "\n");
}

}  // namespace
}  // namespace tally::fakes
