// Launches that say what they touch (include/tally/segments.h), of sessions with a window, on the software GPU.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using control::WindowMode;
using shm::DeclaredBox;
using shm::kLegacyStream;
using shm::Op;

// put(word, factor, addend): *word = *word * factor + addend. Its PTX says that nothing may run beside it.
constexpr const char* kPut = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry put(.param .u64 word, .param .u32 factor, .param .u32 addend)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [factor];
  ld.param.u32 %r2, [addend];
  ld.volatile.global.u32 %r3, [%rd1];
  mad.lo.u32 %r3, %r3, %r1, %r2;
  st.volatile.global.u32 [%rd1], %r3;
  ret;
}
)";
constexpr uint64_t kBytes = 4096;

class DeclaredLaunchesTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    config.driver_table_for_testing = nullptr;
    config.driver.choice = control::DriverChoice::kSim;
    config.driver.sim_path = TALLY_SIM_DRIVER_PATH;
  }
  void Identify(server::SessionIdentity& identity) override { identity.window = mode_; }
  void Start(WindowMode mode = WindowMode::kOn) {
    mode_ = mode;
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
    channel_ = client_->OpenChannel();
    ASSERT_NE(channel_, nullptr);
    kernel_ = LoadKernel(*channel_, "put", nullptr, 1, kPut);
    ASSERT_NE(kernel_, 0u);
    words_ = Allocate(*channel_, kBytes);
    channel_->Post(Op::kFill, Payload().Put(shm::Fill{words_, 0, kBytes / 4, 1, kLegacyStream, 0, 4}));
    ASSERT_EQ(Synchronize(), 0u);
  }

  static std::vector<DeclaredBox> Word(uint64_t address) { return {{address, 4, 1, 0}}; }
  Payload Put(uint64_t word, uint32_t factor, uint32_t addend, uint16_t flags = 0,
              const std::vector<DeclaredBox>& reads = {}, const std::vector<DeclaredBox>& writes = {}) const {
    std::string parameters(16, '\0');
    std::memcpy(parameters.data(), &word, sizeof(word));
    std::memcpy(parameters.data() + 8, &factor, sizeof(factor));
    std::memcpy(parameters.data() + 12, &addend, sizeof(addend));
    Payload payload = LaunchOf(kernel_, kLegacyStream, parameters);
    auto* const head = reinterpret_cast<shm::Launch*>(const_cast<std::byte*>(payload.bytes().data()));
    head->flags = flags;
    head->num_declared_reads = static_cast<uint16_t>(reads.size());
    head->num_declared_writes = static_cast<uint16_t>(writes.size());
    for (const DeclaredBox& box : reads) payload.Put(box);
    for (const DeclaredBox& box : writes) payload.Put(box);
    return payload;
  }
  Payload Declared(uint64_t word, uint32_t factor, uint32_t addend) const {
    return Put(word, factor, addend, shm::kLaunchDeclared, Word(word), Word(word));
  }
  // A launch of the first word that says that it reads this.
  void Post(const std::vector<DeclaredBox>& reads) {
    channel_->Post(Op::kLaunch, Put(words_, 1, 1, shm::kLaunchDeclared, reads, Word(words_)));
  }
  uint32_t Synchronize() { return channel_->Call(Op::kSynchronizeContext).result; }
  uint32_t Read(uint64_t address) {
    const shm::Copy down{0,
                         address,
                         4,
                         kLegacyStream,
                         static_cast<uint32_t>(shm::Place::kArena),
                         static_cast<uint32_t>(shm::Place::kAddress)};
    EXPECT_EQ(channel_->Call(Op::kCopy, Payload().Put(down)).result, 0u);
    uint32_t value = 0;
    std::memcpy(&value, channel_->arena(), sizeof(value));
    return value;
  }
  // Launches; the fill that a test begins with is held, too.
  uint64_t NumHeld() {
    const auto figures = executor_->Snapshot().at(0).figures;
    return figures["window_held"] - figures["window_transfers"];
  }
  uint64_t Barriers(const char* why) {
    return executor_->Snapshot().at(0).figures.entries("window_barriers")[control::WindowBarrierOf(why)];
  }
  // The session's end, and nobody else's.
  void ExpectEnd(const Payload& payload) {
    channel_->Post(Op::kLaunch, payload);
    client_->WaitUntilOver();
    WaitForEnds(++num_ended_);
    EXPECT_TRUE(ends().back().evicted);
    EXPECT_FALSE(executor_->faulted());
  }

  WindowMode mode_ = WindowMode::kOn;
  std::unique_ptr<ScriptedClient> client_;
  std::unique_ptr<ScriptedChannel> channel_;
  size_t num_ended_ = 0;
  uint64_t kernel_ = 0, words_ = 0;
};

TEST_F(DeclaredLaunchesTest, WhatItsKernelForbidsIsHeldOnceDeclared) {
  Start();
  for (uint32_t i = 0; i < 4; ++i) channel_->Post(Op::kLaunch, Put(words_ + i * 512, 1, 1));
  ASSERT_EQ(Synchronize(), 0u);
  EXPECT_EQ(NumHeld(), 0u);
  for (uint32_t i = 0; i < 4; ++i) {
    channel_->Post(Op::kLaunch, Declared(words_ + i * 512, 10, i));
    channel_->Post(Op::kLaunch, Declared(words_ + i * 512, 10, 7));
  }
  ASSERT_EQ(Synchronize(), 0u);
  EXPECT_EQ(NumHeld(), 8u);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(Read(words_ + i * 512), 107 + 10 * i) << "one behind the other";
}

TEST_F(DeclaredLaunchesTest, TheNextLaunchDoesNotHaveIt) {
  Start();
  channel_->Post(Op::kLaunch, Declared(words_, 1, 1));
  channel_->Post(Op::kLaunch, Put(words_ + 512, 1, 1));
  ASSERT_EQ(Synchronize(), 0u);
  EXPECT_EQ(NumHeld(), 1u);
}

TEST_F(DeclaredLaunchesTest, OpaqueIsABarrierByName) {
  Start();
  channel_->Post(Op::kLaunch, Put(words_, 1, 1, shm::kLaunchOpaque));
  ASSERT_EQ(Synchronize(), 0u);
  EXPECT_EQ(Barriers("declared"), 1u);
  EXPECT_EQ(NumHeld(), 0u);
  EXPECT_EQ(Read(words_), 1u);
}

TEST_F(DeclaredLaunchesTest, ShadowCountsAndDoesNotHold) {
  Start(WindowMode::kShadow);
  channel_->Post(Op::kLaunch, Declared(words_, 1, 5));
  ASSERT_EQ(Synchronize(), 0u);
  EXPECT_EQ(executor_->Snapshot().at(0).figures.entries("window_classes")[0], 2u) << "it, and the fill before it";
  EXPECT_EQ(NumHeld(), 0u);
  EXPECT_EQ(Read(words_), 5u);
}

TEST_F(DeclaredLaunchesTest, WithoutAWindowItMeansNothing) {
  Start(WindowMode::kOff);
  channel_->Post(Op::kLaunch, Declared(words_, 1, 5));
  channel_->Post(Op::kLaunch, Put(words_, 10, 1, shm::kLaunchOpaque));
  EXPECT_EQ(Read(words_), 51u);
  EXPECT_EQ(NumHeld() + Barriers("declared"), 0u);
}

TEST_F(DeclaredLaunchesTest, OnlySessionsWithAWindowAreAskedForThem) {
  for (const auto& [mode, wanted] :
       {std::pair(WindowMode::kOff, uint64_t{0}), std::pair(WindowMode::kShadow, shm::kWantsDeclarations),
        std::pair(WindowMode::kOn, shm::kWantsDeclarations)}) {
    auto pair = CreateSocketPair();
    ASSERT_TRUE(pair);
    server::SessionIdentity identity;
    identity.session_id = ++last_session_;
    identity.tenant_name = "scripted";
    identity.window = mode;
    ASSERT_TRUE(executor_->AddSession(std::move(pair->first), identity).ok());
    ScriptedClient client(std::move(pair->second));
    UniqueFd fd;
    const auto reply = client.Request(shm::SessionRequestKind::kAttach, 0, 0, 0, &fd);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->value[1] & shm::kWantsDeclarations, wanted);
  }
}

TEST_F(DeclaredLaunchesTest, MemoryThatIsNotItsOwnMakesABarrier) {
  Start();
  auto neighbour = Connect();
  ASSERT_NE(neighbour, nullptr);
  auto channel = neighbour->OpenChannel();
  const uint64_t theirs = Allocate(*channel, kBytes);
  ASSERT_NE(theirs, 0u);
  const uint64_t freed = Allocate(*channel_, kBytes);
  ASSERT_EQ(channel_->Call(Op::kFree, Payload().PutWord(freed)).result, 0u);
  for (const DeclaredBox& box :
       {DeclaredBox{theirs, 4, 1, 0}, DeclaredBox{freed, 4, 1, 0}, DeclaredBox{words_, kBytes + 1, 1, 0},
        DeclaredBox{words_, 4, 2, kBytes}, DeclaredBox{words_, UINT64_MAX, 1, 0}, DeclaredBox{UINT64_MAX, 2, 1, 0},
        DeclaredBox{words_, 4, UINT64_MAX, UINT64_MAX}, DeclaredBox{0, 1, 1, 0}}) {
    Post({box});
  }
  ASSERT_EQ(Synchronize(), 0u);
  EXPECT_EQ(Barriers("unknown-memory"), 8u);
  UniqueFd pinned_fd;
  const auto pinned = client_->Request(shm::SessionRequestKind::kAllocateHost, kBytes, 0, 0, &pinned_fd);
  ASSERT_TRUE(pinned && pinned->cuda_result == 0);
  Post(Word(pinned->value[0]));
  EXPECT_EQ(Read(words_), 9u) << "all have run";
  EXPECT_EQ(Barriers("host-memory"), 1u);
  EXPECT_EQ(NumHeld(), 0u);
}

TEST_F(DeclaredLaunchesTest, BoxesMayOverlapAndBeManyAsTheyLike) {
  Start();
  std::vector<DeclaredBox> boxes(shm::kMaxDeclaredBoxes - 1, DeclaredBox{words_, 64, 4, 16});
  boxes[1] = {words_ + 8, 64, 4, 0};
  boxes[2] = {words_, 4, 8, 128};
  Post(boxes);
  Post(boxes);
  EXPECT_EQ(Read(words_), 2u);
  EXPECT_EQ(NumHeld(), 2u);
}

TEST_F(DeclaredLaunchesTest, MoreThanThereMayBeEndTheSession) {
  Start();
  const std::vector<DeclaredBox> boxes(shm::kMaxDeclaredBoxes + 1, DeclaredBox{0, 4, 1, 0});
  ExpectEnd(Put(words_, 1, 1, shm::kLaunchDeclared, boxes));
}

TEST_F(DeclaredLaunchesTest, CountsThatLieEndTheSession) {
  for (const uint32_t counts : {0xffffffffu, 0x00010001u, 0x00000001u, 0x00400000u}) {
    Start();
    Payload payload = Put(words_, 1, 1, shm::kLaunchDeclared);
    std::memcpy(const_cast<std::byte*>(payload.bytes().data()) + offsetof(shm::Launch, num_declared_reads), &counts,
                sizeof(counts));
    ExpectEnd(payload);
  }
}

TEST_F(DeclaredLaunchesTest, BoxesThatNobodyAnnouncedEndTheSession) {
  Start();
  ExpectEnd(Put(words_, 1, 1, 0, Word(words_), Word(words_)));
}

}  // namespace
}  // namespace tally::fakes
