// Streams of records that begin as a program's would and then go wrong: what checks of a single record cannot see.
//
// Here a few seeds; `tools/fuzz records SECONDS` goes on from TALLY_FUZZ_SEED for TALLY_FUZZ_SECONDS and says how far
// it came. A seed that fails is named and is the whole input.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "tests/server/executor/fakes/executor_fixture.h"
#include "tests/server/executor/session/record_grammar.h"

namespace tally::fakes {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// A record that is never answered is a finding, too: the process ends and says which.
char last_record[128] = "none";
void SayWhatHangs(int) {
  (void)!::write(STDERR_FILENO, last_record, ::strnlen(last_record, sizeof(last_record)));
  (void)!::write(STDERR_FILENO, ": no answer in a minute\n", 24);
  std::abort();
}

// What the fake driver does not do it refuses, as an old driver does; what has no function at all is not asked for.
template <typename Function>
struct Refused;
template <typename... Parameters>
struct Refused<CUresult (*)(Parameters...)> {
  static CUresult Call(Parameters...) { return CUDA_ERROR_NOT_SUPPORTED; }
};

server::DriverTable WithoutGaps(server::DriverTable table) {
#define TALLY_DRIVER_FUNCTION(name) \
  if (table.name == nullptr) table.name = &Refused<decltype(table.name)>::Call;
#include "proto/driver/generated/driver_functions.inc"
#undef TALLY_DRIVER_FUNCTION
  return table;
}

// A kernel with the 24 bytes of parameters that a launch of the grammar has. 0: failed.
uint64_t LoadKernelOfThree(ScriptedChannel& channel, uint64_t* module) {
  const std::string text =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .align 8 .b8 variable[64];\n"
      ".visible .entry kernel(.param .u64 a, .param .u64 b, .param .u64 c)\n{\nret;\n}\n";
  const auto size = static_cast<uint32_t>(text.size() + 1);
  channel.Post(shm::Op::kWriteImage, Payload().Put(shm::WriteImage{1, size, size, 0}).PutBytes(text.c_str(), size));
  shm::LoadImage load{};
  load.image = 1;
  load.format = static_cast<uint32_t>(shm::ImageFormat::kPtx);
  *module = channel.Call(shm::Op::kLoadModule, Payload().Put(load)).Get<shm::LoadedImage>().handle;
  const std::string name = "kernel";
  const shm::GetByName get{*module, static_cast<uint32_t>(name.size()), 0};
  return channel.Call(shm::Op::kGetFunction, Payload().Put(get).PutBytes(name.data(), name.size()))
      .Get<shm::KernelDescription>()
      .handle;
}

// The software GPU does more of the calls than the fake driver, which in turn notes what a real one would not survive.
class RecordFuzzTest : public ExecutorFixture, public ::testing::WithParamInterface<const char*> {
 protected:
  bool is_sim() const { return std::string(GetParam()) == "sim"; }
  void Configure(server::ExecutorConfig& config) override {
    config.driver.choice = control::DriverChoice::kSim;
    config.driver_table_for_testing = is_sim() ? nullptr : &table_;
    config.limits.image_bytes = 16 << 20;
    config.limits.handles_per_kind = 4096;
    config.limits.pinned_bytes = 8 << 20;
  }
  // Only those look at what launches declare.
  void Identify(server::SessionIdentity& identity) override {
    if (identity.session_id % 2 == 0) identity.window = control::WindowMode::kOn;
  }

  // One session. False: it did not even begin.
  bool Play(uint64_t seed) {
    RecordGrammar grammar(shapes_, seed);
    auto client = Connect();
    auto channel = client != nullptr ? client->OpenChannel() : nullptr;
    if (channel == nullptr) return false;
    uint64_t module = 0;
    grammar.Know("function", LoadKernelOfThree(*channel, &module));
    grammar.Know("module", module);
    grammar.Know("address", Allocate(*channel, 1 << 16));
    // One of most kinds of objects, so that what comes has something to name.
    for (const RecordShape& shape : shapes_) {
      if (shape.gives.empty() || grammar.Below(8) == 0) continue;
      grammar.Learn(shape, channel->CallNumber(shape.op, grammar.Fill(shape)));
    }
    const uint64_t length = 20 + grammar.Below(80);
    const uint64_t first_bad = grammar.Below(length);
    ::alarm(60);
    for (uint64_t i = 0; i < length && !client->IsOver(); ++i) {
      const RecordShape& shape = grammar.Next();
      Payload payload = grammar.Fill(shape);
      // A wait for a word that never comes and a kernel of 2^31 blocks hold up the end of the session, as they may.
      const bool may_wait = shape.op == static_cast<uint16_t>(shm::Op::kMemoryOperations) ||
                            (is_sim() && (shape.op == static_cast<uint16_t>(shm::Op::kLaunch) ||
                                          shape.op == static_cast<uint16_t>(shm::Op::kAddKernelNode)));
      if (i >= first_bad && !may_wait && grammar.Below(2) == 0) payload = grammar.Spoil(payload);
      std::snprintf(last_record, sizeof(last_record), "seed %lu, record %lu, %s", seed, i, shape.name.c_str());
      if (std::getenv("TALLY_FUZZ_TRACE") != nullptr) std::fprintf(stderr, "%s\n", last_record);
      const Answer answer = channel->CallNumber(shape.op, payload);
      ++num_records_;
      if (!answer.arrived) break;
      answers_.insert({shape.op, answer.result});
      grammar.Learn(shape, answer);
    }
    client->Hangup();
    return true;
  }

  const server::DriverTable table_ = WithoutGaps(driver_.table());
  const std::vector<RecordShape> shapes_ = AllShapes("proto/driver/driver_api.tsv");
  std::set<std::pair<uint16_t, uint32_t>> answers_;
  uint64_t num_records_ = 0;
};

TEST_P(RecordFuzzTest, StreamsWithValidBeginnings) {
  const auto seconds = std::chrono::seconds(FromEnvironment("TALLY_FUZZ_SECONDS", 0));
  const uint64_t first = FromEnvironment("TALLY_FUZZ_SEED", 0);
  ::signal(SIGALRM, SayWhatHangs);
  const auto until = std::chrono::steady_clock::now() + seconds;
  const uint64_t kSeeds = is_sim() ? 100 : 300;
  uint64_t num_sessions = 0;
  for (uint64_t seed = first; seed < first + kSeeds || std::chrono::steady_clock::now() < until; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ASSERT_TRUE(Play(seed));
    WaitForEnds(++num_sessions);
    ASSERT_FALSE(executor_->faulted());
    if (is_sim()) continue;
    ASSERT_EQ(driver_.graphs().misuses(), std::vector<std::string>());
    const auto live = driver_.live();
    for (const char* kind : {"memory", "module", "graph", "graph node", "graph exec", "user object"})
      ASSERT_FALSE(live.contains(kind)) << kind;
  }
  std::set<uint16_t> tried, answered, done;
  for (const RecordShape& shape : shapes_) tried.insert(shape.op);
  for (const auto& [op, result] : answers_) {
    answered.insert(op);
    if (result == 0) done.insert(op);
  }
  std::printf("%lu sessions, %lu records; %zu operations, %zu answered, %zu done; %zu kinds of answers\n", num_sessions,
              num_records_, tried.size(), answered.size(), done.size(), answers_.size());
  if (std::getenv("TALLY_FUZZ_VERBOSE") != nullptr) {
    for (const RecordShape& shape : shapes_)
      if (!done.contains(shape.op))
        std::printf("never done: %s (%s)\n", shape.name.c_str(), answered.contains(shape.op) ? "refused" : "no answer");
  }
  // That records are right for the most part, or this would be noise.
  EXPECT_GT(done.size(), tried.size() / 4);
}

INSTANTIATE_TEST_SUITE_P(Drivers, RecordFuzzTest, ::testing::Values("fake", "sim"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace tally::fakes
