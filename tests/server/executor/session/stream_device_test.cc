// A program may name a stream of one device while another is current; what is done to it, is done in its own context.
#include <map>
#include <mutex>

#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::Op;

// A context for each device, and which was current in the thread that asked for something.
struct Contexts {
  static void Replace(server::DriverTable& table) {
    table.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
      return *context = Of(device), CUDA_SUCCESS;
    };
    table.cuCtxSetCurrent = [](CUcontext context) { return current = context, CUDA_SUCCESS; };
    table.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
      const std::lock_guard lock(mutex);
      *stream = reinterpret_cast<CUstream>(0x5000 + made_in.size());
      made_in[*stream] = current;
      return CUDA_SUCCESS;
    };
    table.cuStreamQuery = [](CUstream stream) { return Note(stream), CUDA_SUCCESS; };
    table.cuStreamSynchronize = [](CUstream stream) { return Note(stream), CUDA_SUCCESS; };
    table.cuMemsetD32Async = [](CUdeviceptr, unsigned, size_t, CUstream stream) { return Note(stream), CUDA_SUCCESS; };
  }
  static CUcontext Of(int device) {
    return reinterpret_cast<CUcontext>(uintptr_t{0xC0} + static_cast<uintptr_t>(device));
  }
  static void Note(CUstream stream) {
    const std::lock_guard lock(mutex);
    const auto made = made_in.find(stream);
    if (made == made_in.end()) return;
    ++num_noted;
    if (made->second != current) ++num_wrong;
  }
  static inline thread_local CUcontext current = nullptr;
  static inline std::mutex mutex;
  static inline std::map<CUstream, CUcontext> made_in;
  static inline int num_noted = 0, num_wrong = 0;
};

class StreamDeviceTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    driver_.num_devices = 2;
    table_ = driver_.table();
    Contexts::Replace(table_);
    config.driver_table_for_testing = &table_;
  }
  server::DriverTable table_{};
};

TEST_F(StreamDeviceTest, WhatIsDoneToItIsDoneInItsContext) {
  auto client = Connect();
  auto channel = client->OpenChannel();
  const uint64_t address = Allocate(*channel, 4096, 1);
  const uint64_t stream = channel->Call(Op::kCreateStream, Payload().Put(shm::CreateStream{0, 0}), 1).Get<uint64_t>();
  ASSERT_EQ(channel->Call(Op::kSynchronizeContext, {}, 0).result, 0u);
  for (int i = 0; i < 3; ++i) {
    channel->Post(Op::kFill, Payload().Put(shm::Fill{address, 0, 16, 1, stream, 0, 4}), 0);
    EXPECT_EQ(channel->Call(Op::kSynchronizeStream, Payload().PutWord(stream), 0).result, 0u);
  }
  const std::lock_guard lock(Contexts::mutex);
  EXPECT_EQ(Contexts::made_in.begin()->second, Contexts::Of(1));
  EXPECT_GE(Contexts::num_noted, 6);
  EXPECT_EQ(Contexts::num_wrong, 0);
}

}  // namespace
}  // namespace tally::fakes
