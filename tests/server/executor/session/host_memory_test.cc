// Host memory of clients: what they may register, where it is seen, and what a session may hold.
#include "server/executor/session/host_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <climits>

#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::Op;
using shm::SessionRequestKind;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kSize = 4 * kPage;
constexpr uint64_t kQuota = 1 << 20;

class HostMemoryTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    config.limits.pinned_bytes = kQuota;
    config.limits.device_memory_bytes = kQuota;
  }
  void SetUp() override {
    ExecutorFixture::SetUp();
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
    channel_ = client_->OpenChannel();
    ASSERT_NE(channel_, nullptr);
  }

  // Nothing: the session has ended.
  std::optional<shm::SessionReply> Register(uint64_t address, uint64_t size, uint64_t offset, std::vector<int> fds,
                                            uint32_t device = 0) {
    const shm::SessionRequest request{
        static_cast<uint32_t>(SessionRequestKind::kRegisterHost), device, {address, size, offset}};
    if (!SendMessage(client_->socket(), std::as_bytes(std::span(&request, 1)), fds).ok()) return std::nullopt;
    auto message = ReceiveMessage(client_->socket(), std::chrono::seconds(60));
    shm::SessionReply reply{};
    if (!message || message->bytes.size() != sizeof(reply)) return std::nullopt;
    std::memcpy(&reply, message->bytes.data(), sizeof(reply));
    return reply;
  }
  uint32_t Result(uint64_t address, uint64_t size, uint64_t offset, int fd) {
    const auto reply = Register(address, size, offset, {fd});
    return reply ? reply->cuda_result : UINT_MAX;
  }
  // A page range that nothing is mapped at.
  static uint64_t FreeAddress() {
    void* mapped = ::mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::munmap(mapped, kSize);
    return reinterpret_cast<uint64_t>(mapped);
  }

  std::unique_ptr<ScriptedClient> client_;
  std::unique_ptr<ScriptedChannel> channel_;
};

TEST_F(HostMemoryTest, IsSeenAtTheClientsAddressAndCopied) {
  auto memory = CreateSealedMemfd("tally-test", kSize);
  ASSERT_TRUE(memory);
  auto own = MappedRegion::Map(memory->get(), kSize);
  ASSERT_TRUE(own);
  std::strcpy(reinterpret_cast<char*>(own->data()) + kPage, "second page");
  const uint64_t wish = FreeAddress();
  // Without its first page.
  const auto reply = Register(wish, kSize - kPage, kPage, {memory->get()});
  ASSERT_TRUE(reply);
  ASSERT_EQ(reply->cuda_result, 0u);
  EXPECT_EQ(reply->value[0], wish);
  EXPECT_EQ(executor_->Snapshot().at(0).figures["pinned_memory_bytes"], kSize - kPage);

  const uint64_t device = Allocate(*channel_, 4096);
  const shm::Copy up{device, wish, 12, 1, 0, 0};
  EXPECT_EQ(channel_->Call(Op::kCopy, Payload().Put(up)).result, 0u);
  const shm::Copy down{wish + kPage, device, 12, 1, 0, 0};
  EXPECT_EQ(channel_->Call(Op::kCopy, Payload().Put(down)).result, 0u);
  EXPECT_STREQ(reinterpret_cast<char*>(own->data()) + 2 * kPage, "second page");
  const shm::Copy beyond{device, wish + kSize - kPage - 4, 12, 1, 0, 0};
  EXPECT_EQ(channel_->Call(Op::kCopy, Payload().Put(beyond)).result, CUDA_ERROR_INVALID_VALUE);

  EXPECT_EQ(channel_->Call(Op::kFreeHost, Payload().PutWord(wish)).result, 0u);
  EXPECT_EQ(channel_->Call(Op::kCopy, Payload().Put(up)).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(executor_->Snapshot().at(0).figures["pinned_memory_bytes"], 0u);
}

TEST_F(HostMemoryTest, IsSeenElsewhereWhereTheAddressIsTaken) {
  auto memory = CreateSealedMemfd("tally-test", kSize);
  ASSERT_TRUE(memory);
  auto own = MappedRegion::Map(memory->get(), kSize);  // in this process, which is the executor's too
  ASSERT_TRUE(own);
  const auto taken = reinterpret_cast<uint64_t>(own->data());
  for (const uint64_t wish : {taken, uint64_t{0}, uint64_t{kPage}, uint64_t{0x7fffffff0000}}) {
    const auto reply = Register(wish, kSize, 0, {memory->get()});
    ASSERT_TRUE(reply);
    ASSERT_EQ(reply->cuda_result, 0u);
    EXPECT_NE(reply->value[0], wish);
    auto* elsewhere = reinterpret_cast<volatile char*>(reply->value[0]);
    elsewhere[5] = 'e';
    EXPECT_EQ(static_cast<char>(own->data()[5]), 'e');
    EXPECT_EQ(channel_->Call(Op::kFreeHost, Payload().PutWord(reply->value[0])).result, 0u);
  }
}

TEST_F(HostMemoryTest, MustBeWholePagesOfAFileInMemory) {
  auto memory = CreateSealedMemfd("tally-test", kSize);
  ASSERT_TRUE(memory);
  const int fd = memory->get();
  const uint64_t at = FreeAddress();
  EXPECT_EQ(Result(at, kSize + kPage, 0, fd), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Result(at, kSize, kPage, fd), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Result(at, kSize, ~uint64_t{0} - kPage + 1, fd), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Result(at + 1, kPage, 0, fd), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Result(at, 100, 0, fd), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Result(at, kPage, 100, fd), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Result(at, 0, 0, fd), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Result(at, 2 * kQuota, 0, fd), CUDA_ERROR_OUT_OF_MEMORY);
  UniqueFd device(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(Result(at, kPage, 0, device.get()), CUDA_ERROR_INVALID_VALUE);
  const UniqueFd read_only(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_NE(Result(at, kPage, 0, read_only.get()), 0u);
  EXPECT_EQ(Result(at, kPage, 0, fd), 0u) << "and after all that the session goes on";
}

TEST_F(HostMemoryTest, AFileThatBecomesShorterEndsItsSessionAlone) {
  auto other = Connect();
  auto other_channel = other->OpenChannel();
  const UniqueFd file(::memfd_create("tally-test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kSize), 0);
  const auto reply = Register(FreeAddress(), kSize, 0, {file.get()});
  ASSERT_TRUE(reply);
  ASSERT_EQ(reply->cuda_result, 0u);
  const uint64_t host = reply->value[0];
  ASSERT_EQ(::ftruncate(file.get(), 0), 0);
  const uint64_t device = Allocate(*channel_, kSize);
  const shm::Copy up{device, host, kSize, 1, 0, 0};
  EXPECT_FALSE(channel_->Call(Op::kCopy, Payload().Put(up)).arrived);
  WaitForEnds(1);
  EXPECT_TRUE(ends()[0].evicted);
  EXPECT_NE(ends()[0].reason.find("truncated a file"), std::string::npos) << ends()[0].reason;
  EXPECT_EQ(other_channel->Call(Op::kMemoryAmount).result, 0u);
  EXPECT_FALSE(executor_->faulted());
}

TEST_F(HostMemoryTest, EndsTheSessionForDescriptorsThatMakeNoSense) {
  auto memory = CreateSealedMemfd("tally-test", kSize);
  ASSERT_TRUE(memory);
  EXPECT_FALSE(Register(FreeAddress(), kSize, 0, {}));
  WaitForEnds(1);
  client_ = Connect();
  EXPECT_FALSE(Register(FreeAddress(), kSize, 0, {memory->get(), memory->get()}));
  WaitForEnds(2);
  client_ = Connect();
  EXPECT_FALSE(Register(FreeAddress(), kSize, 0, {memory->get()}, 7)) << "unknown device";
  WaitForEnds(3);
  for (const server::SessionEnd& end : ends()) EXPECT_TRUE(end.evicted);
}

TEST_F(HostMemoryTest, QuotaIsWhatAClientSeesOfTheDevice) {
  const Answer description = channel_->Call(Op::kDescribeDevices, {}, shm::kNoContext);
  EXPECT_EQ(description.Get<shm::DeviceDescription>(8).total_memory_bytes, kQuota);
  const auto free_bytes = [&] { return channel_->Call(Op::kMemoryAmount).Get<uint64_t>(); };
  EXPECT_EQ(free_bytes(), kQuota);
  EXPECT_EQ(channel_->Call(Op::kMemoryAmount).Get<uint64_t>(8), kQuota);
  const uint64_t most = Allocate(*channel_, kQuota - 1000);
  ASSERT_NE(most, 0u);
  EXPECT_EQ(free_bytes(), 1000u);
  EXPECT_EQ(channel_->Call(Op::kAllocate, Payload().Put(shm::Allocate{1001, 0, 0, 0})).result,
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(channel_->Call(Op::kAllocateAsync, Payload().Put(shm::AllocateAsync{1001, 0, 1})).result,
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(channel_->Call(Op::kAllocate, Payload().Put(shm::Allocate{500, 3, 4, 0})).result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(channel_->Call(Op::kFree, Payload().PutWord(most)).result, 0u);
  EXPECT_EQ(free_bytes(), kQuota);
  EXPECT_NE(Allocate(*channel_, kQuota), 0u);
}

}  // namespace
}  // namespace tally::fakes
