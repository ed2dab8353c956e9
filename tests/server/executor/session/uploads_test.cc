// Which copies to the GPU a kernel makes: small ones of page-locked memory, of high-priority programs that take the GPU
// from others. Everything else is the copy engines'.
#include <memory>
#include <string>

#include "server/executor/driver/upload_kernels.h"
#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using server::UploadKernels;
using shm::Op;

constexpr uint32_t kByAddress = static_cast<uint32_t>(shm::Place::kAddress);
constexpr uint32_t kInRecord = static_cast<uint32_t>(shm::Place::kInline);

int num_launches, num_copies;

class UploadsTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    table_ = driver_.table();
    table_.cuModuleGetFunction = [](CUfunction* function, CUmodule module, const char*) -> CUresult {
      return *function = reinterpret_cast<CUfunction>(module), CUDA_SUCCESS;
    };
    table_.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               CUstream, void**, void**) -> CUresult { return ++num_launches, CUDA_SUCCESS; };
    table_.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr, const void*, size_t, CUstream) -> CUresult {
      return ++num_copies, CUDA_SUCCESS;
    };
    table_.cuMemcpyDtoHAsync_v2 = [](void*, CUdeviceptr, size_t, CUstream) -> CUresult {
      return ++num_copies, CUDA_SUCCESS;
    };
    table_.cuMemcpyDtoDAsync_v2 = [](CUdeviceptr, CUdeviceptr, size_t, CUstream) -> CUresult {
      return ++num_copies, CUDA_SUCCESS;
    };
    config.driver_table_for_testing = &table_;
  }
  void Identify(server::SessionIdentity& identity) override {
    identity.priority_class = is_high_ ? shm::PriorityClass::kHighPriority : shm::PriorityClass::kBestEffort;
  }
  void Begin() {
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
    channel_ = client_->OpenChannel();
    ASSERT_NE(channel_, nullptr);
    device_ = Allocate(*channel_, 1 << 20);
    const auto pinned = client_->Request(shm::SessionRequestKind::kAllocateHost, 1 << 20, 0, 0, &pinned_fd_);
    ASSERT_TRUE(pinned && pinned->cuda_result == 0);
    host_ = pinned->value[0];
  }
  // Whether the copy was a launch; false: the driver was asked to copy.
  bool IsLaunched(const Payload& payload) {
    num_launches = num_copies = 0;
    channel_->Post(Op::kCopy, payload);
    EXPECT_EQ(channel_->Call(Op::kSynchronizeContext).result, 0u);
    EXPECT_EQ(num_launches + num_copies, 1);
    return num_launches == 1;
  }
  Payload Up(uint64_t size_bytes) const {
    return Payload().Put(shm::Copy{device_, host_, size_bytes, 1, kByAddress, kByAddress});
  }
  Payload Down(uint64_t size_bytes) const {
    return Payload().Put(shm::Copy{host_, device_, size_bytes, 1, kByAddress, kByAddress});
  }

  server::DriverTable table_;
  bool is_high_ = true;
  std::unique_ptr<ScriptedClient> client_;
  std::unique_ptr<ScriptedChannel> channel_;
  UniqueFd pinned_fd_;
  uint64_t device_ = 0;
  uint64_t host_ = 0;
};

TEST_F(UploadsTest, SmallOnesOfPageLockedMemoryWhileOthersCanBeInterrupted) {
  Begin();
  EXPECT_FALSE(IsLaunched(Up(64)));
  executor_->TakePrecedence(1);
  EXPECT_TRUE(IsLaunched(Up(1)));
  EXPECT_TRUE(IsLaunched(Up(UploadKernels::kMostBytes)));
  EXPECT_FALSE(IsLaunched(Up(UploadKernels::kMostBytes + 1)));
  EXPECT_FALSE(IsLaunched(Down(64)));
  const std::string bytes(16, 'b');
  EXPECT_FALSE(IsLaunched(Payload()
                              .Put(shm::Copy{device_, 0, bytes.size(), 1, kByAddress, kInRecord})
                              .PutBytes(bytes.data(), bytes.size())));
  const shm::Copy on_device{device_, device_ + 4096, 64, 1, kByAddress, kByAddress};
  EXPECT_FALSE(IsLaunched(Payload().Put(on_device)));
  executor_->TakePrecedence(2);  // another GPU's
  EXPECT_FALSE(IsLaunched(Up(64)));
}

TEST_F(UploadsTest, NotOfBestEffortPrograms) {
  is_high_ = false;
  Begin();
  executor_->TakePrecedence(1);
  EXPECT_FALSE(IsLaunched(Up(64)));
}

}  // namespace
}  // namespace tally::fakes
