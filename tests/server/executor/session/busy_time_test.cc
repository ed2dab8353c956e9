// How long a session has work on its GPU, from its launches to its figures: what that costs in calls of the driver, on
// the fake one, and how long it is, on the software GPU.
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "proto/driver/generated/wire_ops.h"
#include "server/executor/channel/request_reader.h"
#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::kLegacyStream;
using shm::Op;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// Calls of every function of the driver, by name.
class CountedCalls {
 public:
  // `table` outlives it.
  static server::DriverTable Count(const server::DriverTable& table) {
    original = &table;
    server::DriverTable counted = table;
#define TALLY_DRIVER_FUNCTION(symbol)                                                                     \
  if (counted.symbol != nullptr) {                                                                        \
    names<& server::DriverTable::symbol> = #symbol;                                                       \
    counted.symbol = &Counted<&server::DriverTable::symbol, decltype(server::DriverTable::symbol)>::Call; \
  }
#include "proto/driver/generated/driver_functions.inc"
#undef TALLY_DRIVER_FUNCTION
    return counted;
  }
  static std::map<std::string, int> Take() {
    const std::lock_guard lock(mutex);
    return std::exchange(calls, {});
  }

 private:
  template <auto member>
  static inline const char* names = "";
  template <auto member, typename Function>
  struct Counted;
  template <auto member, typename Result, typename... Arguments>
  struct Counted<member, Result (*)(Arguments...)> {
    static Result Call(Arguments... arguments) {
      {
        const std::lock_guard lock(mutex);
        ++calls[names<member>];
      }
      return (original->*member)(arguments...);
    }
  };
  static inline std::mutex mutex;
  static inline std::map<std::string, int> calls;  // guarded by mutex
  static inline const server::DriverTable* original = nullptr;
};

class BusyTimeCostTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    table_ = CountedCalls::Count(driver_.table());
    config.driver_table_for_testing = &table_;
  }
  server::DriverTable table_{};
};

// An event recorded for each launch would cost ten times what counting may.
TEST_F(BusyTimeCostTest, ALaunchIsOneCallOfTheDriver) {
  constexpr int kLaunches = 5000;
  const auto client = Connect();
  const auto channel = client->OpenChannel();
  const uint64_t kernel = LoadKernel(*channel, "kernel");
  channel->Post(Op::kLaunch, LaunchOf(kernel, kLegacyStream));
  ASSERT_EQ(channel->Call(Op::kSynchronizeContext).result, 0u);
  CountedCalls::Take();
  const uint64_t before = driver_.num_launches();
  ASSERT_EQ(before, 1u);
  for (int i = 0; i < kLaunches; ++i) channel->Post(Op::kLaunch, LaunchOf(kernel, kLegacyStream));
  while (driver_.num_launches() < before + kLaunches) std::this_thread::yield();
  std::map<std::string, int> calls = CountedCalls::Take();
  EXPECT_EQ(calls["cuLaunchKernel"], kLaunches);
  calls.erase("cuLaunchKernel");
  // A client that is kept from running is silent, and a look costs one query.
  EXPECT_LT(calls["cuStreamQuery"], kLaunches / 4);
  calls.erase("cuStreamQuery");
  EXPECT_EQ(calls, (std::map<std::string, int>()));
}

// A program that waits for its work is not looked at.
TEST_F(BusyTimeCostTest, WaitingForItIsOneCallMore) {
  constexpr int kRounds = 200;
  const auto client = Connect();
  const auto channel = client->OpenChannel();
  const uint64_t kernel = LoadKernel(*channel, "kernel");
  const auto round = [&] {
    channel->Post(Op::kLaunch, LaunchOf(kernel, kLegacyStream));
    ASSERT_EQ(channel->Call(Op::kSynchronizeContext).result, 0u);
  };
  round();
  std::this_thread::sleep_for(milliseconds(2));
  CountedCalls::Take();
  int num_quick = 0, num_looks = 0;
  for (int i = 0; i < kRounds; ++i) {
    const auto began = steady_clock::now();
    channel->Post(Op::kLaunch, LaunchOf(kernel, kLegacyStream));
    channel->Publish(static_cast<uint16_t>(Op::kSynchronizeContext), {}, shm::kWantReply, 0);
    // Or it was kept from running: who is silent for so long is looked at.
    const bool was_quick = steady_clock::now() - began < server::RequestReader::kFirstLook;
    ASSERT_EQ(channel->Await().result, 0u);
    std::map<std::string, int> calls = CountedCalls::Take();
    ASSERT_EQ(calls["cuLaunchKernel"], 1);
    ASSERT_EQ(calls["cuStreamSynchronize"], 1);
    // Best-effort waits look once themselves before they sleep in the driver.
    num_quick += was_quick ? 1 : 0;
    num_looks += was_quick ? calls["cuStreamQuery"] - 1 : 0;
    calls.erase("cuStreamQuery");
    ASSERT_EQ(calls.size(), 2u) << "something else was asked";
  }
  EXPECT_LE(num_looks, num_quick / 2) << "the executor may have been kept from running";
}

// linger(n): takes n rounds
constexpr const char* kLinger = R"(
.version 8.0
.target sm_80
.address_size 64
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

class BusyTimeTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    config.driver_table_for_testing = nullptr;
    config.driver.choice = control::DriverChoice::kSim;
    config.driver.sim_path = TALLY_SIM_DRIVER_PATH;
  }
  struct Program {
    std::unique_ptr<ScriptedClient> client;
    std::unique_ptr<ScriptedChannel> channel;
    uint64_t kernel = 0;

    void Linger(uint32_t rounds, uint64_t stream = kLegacyStream) const {
      channel->Post(Op::kLaunch, LaunchOf(kernel, stream, std::string(reinterpret_cast<const char*>(&rounds), 4)));
    }
    uint64_t NewStream() const {
      const shm::CreateStream create{CU_STREAM_NON_BLOCKING, 0};
      return channel->Call(Op::kCreateStream, Payload().Put(create)).Get<uint64_t>();
    }
    uint32_t Wait() const { return channel->Call(Op::kSynchronizeContext).result; }
  };
  Program NewProgram() {
    Program program;
    program.client = Connect();
    program.channel = program.client->OpenChannel();
    program.kernel = LoadKernel(*program.channel, "linger", nullptr, 1, kLinger);
    EXPECT_NE(program.kernel, 0u);
    program.Linger(1);  // translated by now
    EXPECT_EQ(program.Wait(), 0u);
    return program;
  }
  // Of the session that came as the so manieth; all its entries.
  nanoseconds BusyOf(size_t session) {
    const auto snapshot = executor_->Snapshot().at(session);
    uint64_t sum = 0;
    for (const uint64_t ns : snapshot.figures.entries("busy_ns")) sum += ns;
    return nanoseconds(sum);
  }
  // Of the only session, once its time has grown and does not any more.
  nanoseconds BusyOnceItRests(nanoseconds before) {
    while (BusyOf(0) == before) std::this_thread::yield();
    nanoseconds busy = BusyOf(0);
    for (int i = 0; i < 500; ++i) {
      std::this_thread::sleep_for(milliseconds(20));
      const nanoseconds last = std::exchange(busy, BusyOf(0));
      if (busy == last) return busy;
    }
    ADD_FAILURE() << "it grows for ever";
    return busy;
  }
  // How many rounds take about so long here, where others may have the processors for a while: the quickest of a few.
  uint32_t RoundsFor(const Program& program, nanoseconds time) {
    const auto is_quicker = [&](uint32_t rounds) {
      const auto begin = steady_clock::now();
      program.Linger(rounds);
      EXPECT_EQ(program.Wait(), 0u);
      return steady_clock::now() - begin < time / 2;
    };
    uint32_t rounds = 10000;
    while (rounds < 1u << 30 && (is_quicker(rounds) || is_quicker(rounds) || is_quicker(rounds))) rounds *= 2;
    return rounds * 2;
  }
};

TEST_F(BusyTimeTest, WhoOnlyHasASessionIsNotBusy) {
  const auto client = Connect();
  const auto channel = client->OpenChannel();
  ASSERT_NE(Allocate(*channel, 4096), 0u);
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(BusyOf(0), nanoseconds(0));
}

TEST_F(BusyTimeTest, AKernelCountsForAsLongAsItRuns) {
  const Program program = NewProgram();
  const uint32_t rounds = RoundsFor(program, milliseconds(100));
  const nanoseconds before = BusyOf(0);
  const auto begin = steady_clock::now();
  program.Linger(rounds);
  ASSERT_EQ(program.Wait(), 0u);
  const nanoseconds took = steady_clock::now() - begin;
  const nanoseconds busy = BusyOf(0) - before;
  EXPECT_LE(busy, took);
  EXPECT_GE(busy, milliseconds(25));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(BusyOf(0) - before, busy) << "nothing runs";
}

// Nobody waits, and no more requests come: its streams are looked at.
TEST_F(BusyTimeTest, AKernelThatNobodyWaitsForEndsToo) {
  const Program program = NewProgram();
  const uint32_t rounds = RoundsFor(program, milliseconds(100));
  const nanoseconds before = BusyOf(0);
  const auto begin = steady_clock::now();
  program.Linger(rounds);
  const nanoseconds busy = BusyOnceItRests(before) - before;
  EXPECT_LE(busy, steady_clock::now() - begin - milliseconds(20));
  EXPECT_GE(busy, milliseconds(25));
  // That it waits late makes it no longer.
  ASSERT_EQ(program.Wait(), 0u);
  EXPECT_EQ(BusyOf(0) - before, busy);
}

TEST_F(BusyTimeTest, SessionsOfOneExecutorCountTheirOwn) {
  const Program first = NewProgram();
  const Program second = NewProgram();
  const uint32_t rounds = RoundsFor(first, milliseconds(50));
  const nanoseconds first_before = BusyOf(0), second_before = BusyOf(1);
  first.Linger(rounds);
  ASSERT_EQ(first.Wait(), 0u);
  EXPECT_GE(BusyOf(0) - first_before, milliseconds(10));
  EXPECT_EQ(BusyOf(1), second_before);
}

TEST_F(BusyTimeTest, WhatRunsWhenItsClientGoesCountsToItsEnd) {
  Program program = NewProgram();
  const uint32_t rounds = RoundsFor(program, milliseconds(200));
  const nanoseconds before = BusyOf(0);
  program.Linger(rounds);
  while (BusyOf(0) == before) std::this_thread::yield();
  program.client->Hangup();
  WaitForEnds(1);
  uint64_t sum = 0;
  for (const uint64_t ns : ends().at(0).last.figures.entries("busy_ns")) sum += ns;
  EXPECT_GE(nanoseconds(sum) - before, milliseconds(50));
}

// What it still has to do is another stream's from then on, which nobody ever waits for.
TEST_F(BusyTimeTest, AStreamThatIsDestroyedMeanwhileIsSeenToEnd) {
  const Program program = NewProgram();
  const uint32_t rounds = RoundsFor(program, milliseconds(100));
  const nanoseconds before = BusyOf(0);
  const uint64_t stream = program.NewStream();
  program.Linger(rounds, stream);
  program.channel->Post(Op::kDestroyStream, Payload().PutWord(stream));
  const nanoseconds busy = BusyOnceItRests(before) - before;
  EXPECT_GE(busy, milliseconds(25)) << "it ran on";
  ASSERT_EQ(program.Wait(), 0u);
  EXPECT_EQ(BusyOf(0) - before, busy);
}

TEST_F(BusyTimeTest, WhatIsCapturedDoesNotRun) {
  const Program program = NewProgram();
  const nanoseconds before = BusyOf(0);
  const uint64_t stream = program.NewStream();
  ScriptedChannel& channel = *program.channel;
  ASSERT_EQ(channel.Call(Op::kBeginCapture, Payload().Put(shm::BeginCapture{stream, 0, 0, 0, 0, 0})).result, 0u);
  program.Linger(1000, stream);
  EXPECT_EQ(channel.Call(Op::kEndCapture, Payload().PutWord(stream)).result, 0u);
  EXPECT_EQ(BusyOf(0), before);
}

// Asking a stream that is being captured would spoil the capture.
TEST_F(BusyTimeTest, AStreamThatIsBeingCapturedIsNotLookedAt) {
  const Program program = NewProgram();
  const uint32_t rounds = RoundsFor(program, milliseconds(30));
  const uint64_t stream = program.NewStream();
  ScriptedChannel& channel = *program.channel;
  const nanoseconds before = BusyOf(0);
  program.Linger(rounds, stream);
  ASSERT_EQ(channel.Call(Op::kBeginCapture, Payload().Put(shm::BeginCapture{stream, 0, 0, 0, 0, 0})).result, 0u);
  program.Linger(1000, stream);
  std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(channel.Call(Op::kEndCapture, Payload().PutWord(stream)).result, 0u);
  BusyOnceItRests(before);
}

// The program waits for an event, and says nothing for a while: all that it has launched was complete by then.
TEST_F(BusyTimeTest, AnEventTellsWhenItEnded) {
  const Program program = NewProgram();
  const uint32_t rounds = RoundsFor(program, milliseconds(50));
  ScriptedChannel& channel = *program.channel;
  channel.Post(Op::kCreateEvent, Payload().Put(shm::CreateEvent{kFirstEvent, CU_EVENT_DISABLE_TIMING, 0}));
  const nanoseconds before = BusyOf(0);
  const auto begin = steady_clock::now();
  program.Linger(rounds);
  channel.Publish(kOp_cuEventRecord, Payload().PutWord(kFirstEvent).PutWord(kLegacyStream), 0, 0);
  ASSERT_EQ(channel.Call(Op::kSynchronizeEvent, Payload().PutWord(kFirstEvent)).result, 0u);
  const nanoseconds took = steady_clock::now() - begin;
  // Until it has been looked at: a figure in between would count on.
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LE(BusyOf(0) - before, took);
  EXPECT_GE(BusyOf(0) - before, milliseconds(10));
}

TEST_F(BusyTimeTest, EachClassHasItsOwn) {
  const Program program = NewProgram();
  const auto entry = [&](bool is_high_priority) {
    return executor_->Snapshot().at(0).figures.entries("busy_ns")[control::GpuEntry(0, is_high_priority)];
  };
  control::ShareChange change;
  change.priority_class = shm::PriorityClass::kHighPriority;
  ASSERT_TRUE(executor_->SetPriority(1, change).ok());
  const uint64_t before = entry(false);
  EXPECT_GT(before, 0u) << "it had done something by then, though nobody had asked";
  EXPECT_EQ(entry(true), 0u);
  program.Linger(1000);
  ASSERT_EQ(program.Wait(), 0u);
  EXPECT_EQ(entry(false), before);
  EXPECT_GT(entry(true), 0u);
  change.priority_class = shm::PriorityClass::kBestEffort;
  ASSERT_TRUE(executor_->SetPriority(1, change).ok());
  const uint64_t as_high = entry(true);
  program.Linger(1000);
  ASSERT_EQ(program.Wait(), 0u);
  EXPECT_EQ(entry(true), as_high);
  EXPECT_GT(entry(false), before);
}

}  // namespace
}  // namespace tally::fakes
