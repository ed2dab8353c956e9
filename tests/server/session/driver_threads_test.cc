// What a client does to threads that the driver made, on the software driver.
#include <sys/mman.h>
#include <unistd.h>

#include "tests/server/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::Op;

constexpr uint64_t kBytes = 64 << 10;

class DriverThreadsTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    config.driver_table_for_testing = nullptr;
    config.driver = server::DriverChoice::kSim;
    config.sim_library_path = TALLY_SIM_DRIVER_PATH;
  }
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

TEST_F(DriverThreadsTest, AFileThatBecomesShorterEndsItsSessionAlone) {
  auto witness = Connect();
  auto witness_lane = witness->OpenLane();
  const uint64_t cell = Allocate(*witness_lane, 8);
  ASSERT_NE(cell, 0u);
  auto client = Connect();
  auto lane = client->OpenLane();
  const UniqueFd file(::memfd_create("tally-test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kBytes), 0);
  const uint64_t host = Register(*client, file.get());
  ASSERT_NE(host, 0u);
  const uint64_t device = Allocate(*lane, kBytes);
  const shm::Copy up{device, host, kBytes, 1, 0, 0};
  const auto copy_and_wait = [&] {
    lane->Post(Op::kCopy, Payload().Put(up));
    return lane->Call(Op::kSynchronizeContext);
  };
  EXPECT_EQ(copy_and_wait().result, 0u);
  ASSERT_EQ(::ftruncate(file.get(), 0), 0);
  EXPECT_FALSE(copy_and_wait().arrived);
  WaitForEnds(1);
  EXPECT_NE(ends()[0].reason.find("truncated a file"), std::string::npos) << ends()[0].reason;
  const shm::Copy down{0, cell, 8, 1, static_cast<uint32_t>(shm::Place::kArena), 0};
  EXPECT_EQ(witness_lane->Call(Op::kCopy, Payload().Put(down)).result, 0u);
  EXPECT_FALSE(executor_->faulted());
}

}  // namespace
}  // namespace tally::fakes
