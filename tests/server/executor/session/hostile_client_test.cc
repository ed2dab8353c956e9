// Clients that write what the shim never would. Whatever they do, the executor and other sessions go on, and nothing of
// them stays. Deterministic: each case is a function of its seed.
#include <sys/socket.h>

#include <random>

#include "images/fat_container.h"
#include "proto/driver/generated/wire_ops.h"
#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::Op;

class HostileClientTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    config.limits.image_bytes = 16 << 20;
    config.limits.handles_per_kind = 4096;
    config.limits.pinned_bytes = 8 << 20;
  }
  void SetUp() override {
    ExecutorFixture::SetUp();
    witness_ = Connect();
    witness_channel_ = witness_->OpenChannel();
    cell_ = Allocate(*witness_channel_, 8);
  }
  // A session that behaves is served as if nothing had happened, and its memory is as it left it.
  void ExpectWitnessUnharmed() {
    const shm::Copy down{0, cell_, 8, 1, static_cast<uint32_t>(shm::Place::kArena), 0};
    ASSERT_EQ(witness_channel_->Call(Op::kCopy, Payload().Put(down)).result, 0u);
    uint64_t value = 1;
    std::memcpy(&value, witness_channel_->arena(), 8);
    EXPECT_EQ(value, 0u);
    EXPECT_FALSE(executor_->faulted());
  }

  std::unique_ptr<ScriptedClient> witness_;
  std::unique_ptr<ScriptedChannel> witness_channel_;
  uint64_t cell_ = 0;
};

// Numbers that find the edges of checks more often than random ones.
uint64_t Interesting(std::mt19937_64& random, std::span<const uint64_t> known) {
  switch (random() % 8) {
    case 0:
      return random();
    case 1:
      return 0;
    case 2:
      return UINT64_MAX >> (random() % 64);
    case 3:
      return uint64_t{1} << (random() % 64);
    case 4:
      return random() % 64;
    default:
      return known[random() % known.size()] + (random() % 4 == 0 ? random() % 64 : 0);
  }
}

TEST_F(HostileClientTest, RecordsOfEveryOperationWithRandomWords) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    auto client = Connect();
    ASSERT_NE(client, nullptr);
    auto channel = client->OpenChannel();
    const uint64_t kernel = LoadKernel(*channel, "kernel");
    const uint64_t memory = Allocate(*channel, 4096);
    const uint64_t stream = channel->Call(Op::kCreateStream, Payload().Put(shm::CreateStream{})).Get<uint64_t>();
    channel->Post(Op::kCreateEvent, Payload().Put(shm::CreateEvent{kFirstEvent, 0, 0}));
    const uint64_t graph = channel->CallNumber(kOp_cuGraphCreate, Payload().PutWord(0)).Get<uint64_t>();
    const std::vector<uint64_t> known = {kernel, memory, stream, kFirstEvent, graph, 1, 2, 16, cell_};
    for (int i = 0; i < 60 && !client->IsOver(); ++i) {
      // Not the one that waits for callbacks: it would wait.
      uint16_t op =
          static_cast<uint16_t>(random() % 4 == 0 ? shm::kFirstWireOp + random() % kNumWireOps : random() % 160);
      if (op == static_cast<uint16_t>(Op::kAwaitCallback) || op == 0) continue;
      if (op == static_cast<uint16_t>(Op::kLaunchHostFunction)) continue;  // nobody acknowledges
      Payload payload;
      const size_t words = random() % 24;
      for (size_t w = 0; w < words; ++w) payload.PutWord(Interesting(random, known));
      channel->Publish(op, payload, random() % 2, random() % 4 == 0 ? static_cast<uint32_t>(random() % 80) : 0);
    }
    client->Hangup();
  }
  WaitForEnds(300);
  ExpectWitnessUnharmed();
  const auto live = driver_.live();
  EXPECT_EQ(live.at("memory"), 1);
  EXPECT_FALSE(live.contains("module"));
  EXPECT_FALSE(live.contains("graph"));
}

TEST_F(HostileClientTest, RingsAndHeadersFullOfNoise) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    auto client = Connect();
    ASSERT_NE(client, nullptr);
    auto channel = client->OpenChannel();
    const size_t noise = random() % 3 == 0 ? channel->region().size() : 8192 + random() % 65536;
    for (size_t at = 0; at + 8 <= std::min<size_t>(noise, 1 << 20); at += 8) {
      const uint64_t word = random() % 4 == 0 ? random() : random() % 512;
      std::memcpy(channel->region().data() + at, &word, 8);
    }
    const uint64_t position = random() % 2 == 0 ? random() : random() % (1 << 21) / 16 * 16;
    channel->header().request.write_position.store(position);
    channel->Ring();
    if (random() % 2 == 0) client->header().next_sequence_number.store(random());
    client->Hangup();
  }
  WaitForEnds(300);
  ExpectWitnessUnharmed();
}

TEST_F(HostileClientTest, RecordHeadersThatLieAboutTheirSize) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    auto client = Connect();
    ASSERT_NE(client, nullptr);
    auto channel = client->OpenChannel();
    shm::RequestHeader head{};
    head.size_bytes = static_cast<uint32_t>(random() % 2 == 0 ? random() : random() % 256 * 16);
    head.op = static_cast<uint16_t>(random() % 100);
    head.payload_bytes = static_cast<uint32_t>(random() % 2 == 0 ? random() : random() % 4096);
    head.sequence_number = random() % 3;
    std::memcpy(channel->request_ring(), &head, sizeof(head));
    channel->header().request.write_position.store(random() % 128 * 16);
    channel->Ring();
    client->Hangup();
  }
  WaitForEnds(300);
  ExpectWitnessUnharmed();
}

TEST_F(HostileClientTest, SequenceNumbersThatAreNeverGivenOrGivenTwice) {
  auto skipper = Connect();
  auto skipper_channel = skipper->OpenChannel();
  skipper_channel->Publish(static_cast<uint16_t>(Op::kSynchronizeContext), {}, shm::kWantReply, 0,
                           5);  // waits for 0..4
  auto repeater = Connect();
  auto repeater_channel = repeater->OpenChannel();
  repeater_channel->Publish(static_cast<uint16_t>(Op::kMemoryAmount), {}, shm::kWantReply, 0, 0);
  EXPECT_EQ(repeater_channel->Await().result, 0u);
  repeater_channel->Publish(static_cast<uint16_t>(Op::kMemoryAmount), {}, shm::kWantReply, 0, 0);
  repeater->WaitUntilOver();
  skipper->Hangup();
  WaitForEnds(2);
  ExpectWitnessUnharmed();
}

TEST_F(HostileClientTest, ReaderThatNeverReadsAndPositionsThatRunAhead) {
  auto lazy = Connect();
  auto lazy_channel = lazy->OpenChannel();
  for (int i = 0; i < 20000 && !lazy->IsOver(); ++i) {
    if (lazy_channel->header().request.write_position.load() - lazy_channel->header().request.read_position.load() >
        shm::kRequestRingBytes / 2) {
      break;  // the server is stuck on our replies, as it should be
    }
    lazy_channel->Publish(static_cast<uint16_t>(Op::kMemoryAmount), {}, shm::kWantReply, 0);
  }
  auto runner = Connect();
  auto runner_channel = runner->OpenChannel();
  runner_channel->header().reply.read_position.store(uint64_t{1} << 40);
  for (int i = 0; i < 20000 && !runner->IsOver(); ++i) {  // looked at when the ring seems full
    runner_channel->Publish(static_cast<uint16_t>(Op::kMemoryAmount), {}, shm::kWantReply, 0);
  }
  runner->WaitUntilOver();
  lazy->Hangup();
  WaitForEnds(2);
  ExpectWitnessUnharmed();
}

TEST_F(HostileClientTest, SocketsWithNoise) {
  size_t sessions = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    auto client = Connect();
    ASSERT_NE(client, nullptr);
    ++sessions;
    for (int i = 0; i < 8; ++i) {
      shm::SessionRequest request{};
      request.kind = static_cast<uint32_t>(random() % 6);
      for (uint64_t& value : request.value) value = random() % 2 == 0 ? random() : random() % (1 << 20);
      const size_t size = random() % 4 == 0 ? 1 + random() % sizeof(request) : sizeof(request);
      const std::vector<int> fds(random() % 8 == 0 ? 1 : 0, client->socket());
      if (!SendMessage(client->socket(), std::as_bytes(std::span(&request, 1)).first(size), fds).ok()) break;
    }
    client->Hangup();
  }
  WaitForEnds(sessions);
  ExpectWitnessUnharmed();
  EXPECT_FALSE(driver_.live().contains("registration") && driver_.live().at("registration") > 1);
}

TEST_F(HostileClientTest, ImagesOutOfOrder) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    auto client = Connect();
    ASSERT_NE(client, nullptr);
    auto channel = client->OpenChannel();
    for (int i = 0; i < 10 && !client->IsOver(); ++i) {
      const uint32_t size = static_cast<uint32_t>(random() % 64);
      const shm::WriteImage piece{static_cast<uint32_t>(random() % 3), random() % 4 == 0 ? size * 1000 : size,
                                  random() % 4 == 0 ? random() : random() % 128,
                                  random() % 3 == 0 ? random() % 128 : 0};
      std::string bytes(size, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      channel->Post(Op::kWriteImage, Payload().Put(piece).PutBytes(bytes.data(), bytes.size()));
      shm::LoadImage load{};
      load.image = piece.image;
      load.format = static_cast<uint32_t>(random() % 6);
      load.wrapper_version = static_cast<uint32_t>(random() % 4);
      load.num_prelinked = static_cast<uint32_t>(random() % 3 == 0 ? random() : random() % 3);
      load.num_options = static_cast<uint32_t>(random() % 3);
      load.info_log_bytes = static_cast<uint32_t>(random());
      channel->Post(random() % 2 == 0 ? Op::kLoadModule : Op::kLoadLibrary, Payload().Put(load).PutWord(random()));
    }
    client->Hangup();
  }
  WaitForEnds(200);
  ExpectWitnessUnharmed();
}

// A few KiB that would be half a GiB once decompressed: not the executor's memory, and no reason to end the session.
TEST_F(HostileClientTest, ImageThatWouldExpandBeyondMeasure) {
  auto client = Connect();
  auto channel = client->OpenChannel();
  constexpr size_t kPayload = 4096, kEntry = 64 + kPayload;
  std::string container(16 + kEntry, '\0');
  const auto put = [&](size_t at, auto value) { std::memcpy(container.data() + at, &value, sizeof(value)); };
  put(0, images::kFatContainerMagic);
  put(4, uint16_t{1});
  put(6, uint16_t{16});
  put(8, uint64_t{kEntry});
  put(16, images::FatEntryKind::kPtx);
  put(20, uint32_t{64});
  put(24, uint64_t{kPayload});
  put(32, uint32_t{kPayload});
  put(44, uint32_t{80});
  put(56, images::fat_flag::kZstd);
  put(72, uint64_t{500 << 20});
  for (const auto format : {shm::ImageFormat::kContainer, shm::ImageFormat::kWrapper}) {
    const uint32_t size = static_cast<uint32_t>(container.size());
    channel->Post(Op::kWriteImage,
                  Payload().Put(shm::WriteImage{7, size, size, 0}).PutBytes(container.data(), container.size()));
    shm::LoadImage load{};
    load.image = 7;
    load.format = static_cast<uint32_t>(format);
    load.wrapper_version = 1;
    EXPECT_EQ(channel->Call(Op::kLoadModule, Payload().Put(load)).result, CUDA_ERROR_OUT_OF_MEMORY);
  }
  EXPECT_NE(LoadKernel(*channel, "kernel"), 0u);  // the session goes on
  client->Hangup();
  WaitForEnds(1);
  ExpectWitnessUnharmed();
}

// An older driver does not list the kernels of a module: found by record_fuzz_test.cc as a call of a null pointer.
TEST_F(HostileClientTest, KernelsThatTheDriverCannotList) {
  auto client = Connect();
  auto channel = client->OpenChannel();
  uint64_t module = 0;
  ASSERT_NE(LoadKernel(*channel, "kernel", &module), 0u);
  EXPECT_EQ(channel->Call(Op::kListKernels, Payload().Put(shm::GetByName{module, 0, 0})).result,
            CUDA_ERROR_NOT_SUPPORTED);
  client->Hangup();
  WaitForEnds(1);
  ExpectWitnessUnharmed();
}

}  // namespace
}  // namespace tally::fakes
