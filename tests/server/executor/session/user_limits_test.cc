// What the sessions of one user may make the executor hold, together.
#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::Op;

constexpr uint64_t kPage = 4096;
constexpr uid_t kUser = 7, kOther = 8;

class UserLimitsTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    config.limits.pinned_bytes = 3 * kPage;
    config.limits.image_bytes = 3000;
    config.limits.channels = 2;
    config.user_limits.pinned_bytes = 4 * kPage;
    config.user_limits.image_bytes = 4000;
    config.user_limits.channels = 3;
  }
  static uint32_t OpenChannel(ScriptedClient& client) {
    return client.Request(shm::SessionRequestKind::kOpenChannel)->cuda_result;
  }
  static uint32_t Pin(ScriptedClient& client, uint64_t size_bytes) {
    return client.Request(shm::SessionRequestKind::kAllocateHost, size_bytes, 0)->cuda_result;
  }
  // A module of so many bytes.
  static uint32_t Load(ScriptedChannel& channel, uint32_t image, size_t size_bytes) {
    std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n";
    text.resize(size_bytes - 1, '\n');
    const shm::WriteImage piece{image, static_cast<uint32_t>(size_bytes), size_bytes, 0};
    channel.Post(Op::kWriteImage, Payload().Put(piece).PutBytes(text.c_str(), size_bytes));
    shm::LoadImage load{};
    load.image = image;
    load.format = static_cast<uint32_t>(shm::ImageFormat::kPtx);
    return channel.Call(Op::kLoadModule, Payload().Put(load)).result;
  }
};

TEST_F(UserLimitsTest, Channels) {
  auto first = Connect(kUser);
  auto second = Connect(kUser);
  EXPECT_EQ(OpenChannel(*first), 0u);
  EXPECT_EQ(OpenChannel(*first), 0u);
  EXPECT_EQ(OpenChannel(*first), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(OpenChannel(*second), 0u);
  EXPECT_EQ(OpenChannel(*second), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(OpenChannel(*Connect(kOther)), 0u);
  first->Hangup();
  WaitForEnds(2);
  EXPECT_EQ(OpenChannel(*second), 0u);
}

TEST_F(UserLimitsTest, PinnedMemory) {
  auto first = Connect(kUser);
  auto second = Connect(kUser);
  EXPECT_EQ(Pin(*first, 4 * kPage), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Pin(*first, 3 * kPage), 0u);
  EXPECT_EQ(Pin(*second, kPage + 1), CUDA_ERROR_OUT_OF_MEMORY) << "a page and a byte are two pages";
  EXPECT_EQ(Pin(*second, kPage), 0u);
  EXPECT_EQ(Pin(*second, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Pin(*Connect(kOther), 3 * kPage), 0u);
  first->Hangup();
  WaitForEnds(2);
  EXPECT_EQ(Pin(*second, 2 * kPage), 0u);
}

TEST_F(UserLimitsTest, DeviceCode) {
  auto first = Connect(kUser);
  auto second = Connect(kUser);
  auto first_channel = first->OpenChannel();
  auto second_channel = second->OpenChannel();
  EXPECT_EQ(Load(*first_channel, 1, 3001), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Load(*first_channel, 2, 3000), 0u);
  EXPECT_EQ(Load(*second_channel, 1, 1001), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Load(*second_channel, 2, 1000), 0u);
  first->Hangup();
  WaitForEnds(1);
  EXPECT_EQ(Load(*second_channel, 3, 2000), 0u);
}

}  // namespace
}  // namespace tally::fakes
