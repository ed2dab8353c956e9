// A session that may use some of the devices only: whatever it asks for, the others are not there.
#include "server/executor/session/session_gpus.h"

#include <functional>
#include <map>

#include "proto/driver/generated/wire_ops.h"
#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::Op;

constexpr uint32_t kOwn = 2, kForeign = 0;
constexpr uint64_t kPiece = uint64_t{2} << 20;

class SessionGpusTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    table_ = driver_.table();
    table_.cuDeviceGetCount = [](int* count) -> CUresult { return *count = 3, CUDA_SUCCESS; };
    table_.cuDeviceGetUuid_v2 = [](CUuuid* uuid, CUdevice device) -> CUresult {
      std::memset(uuid->bytes, 0xa0 + device, sizeof(uuid->bytes));
      return CUDA_SUCCESS;
    };
    table_.cuDeviceCanAccessPeer = [](int* can, CUdevice, CUdevice) -> CUresult { return *can = 1, CUDA_SUCCESS; };
    table_.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) -> CUresult {
      ++num_contexts[device];
      return *context = reinterpret_cast<CUcontext>(uintptr_t{0x100} + static_cast<uintptr_t>(device)), CUDA_SUCCESS;
    };
    // Enough for memory to be asked for: none comes.
    table_.cuMemAddressReserve = [](CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long) -> CUresult {
      return CUDA_ERROR_OUT_OF_MEMORY;
    };
    table_.cuMemAddressFree = [](CUdeviceptr, size_t) -> CUresult { return CUDA_SUCCESS; };
    table_.cuMemCreate = [](CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                            unsigned long long) -> CUresult { return CUDA_ERROR_OUT_OF_MEMORY; };
    table_.cuMemRelease = [](CUmemGenericAllocationHandle) -> CUresult { return CUDA_SUCCESS; };
    table_.cuMemMap = [](CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) -> CUresult {
      return CUDA_ERROR_OUT_OF_MEMORY;
    };
    table_.cuMemUnmap = [](CUdeviceptr, size_t) -> CUresult { return CUDA_SUCCESS; };
    table_.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) -> CUresult {
      return CUDA_SUCCESS;
    };
    num_contexts.clear();
    config.driver_table_for_testing = &table_;
  }
  void Identify(server::SessionIdentity& identity) override { identity.gpus = gpus_; }

  std::vector<shm::DeviceDescription> Described(const std::string& gpus) {
    gpus_ = gpus;
    const auto client = Connect();
    const auto channel = client->OpenChannel();
    const Answer answer = channel->Call(Op::kDescribeDevices, {}, shm::kNoContext);
    EXPECT_EQ(answer.result, 0u);
    std::vector<shm::DeviceDescription> devices;
    for (uint32_t i = 0; i < answer.Get<uint32_t>(); ++i) {
      devices.push_back(answer.Get<shm::DeviceDescription>(8 + i * sizeof(shm::DeviceDescription)));
    }
    return devices;
  }

  server::DriverTable table_;
  std::string gpus_;
  static inline std::map<int, int> num_contexts;
};

TEST_F(SessionGpusTest, WhatItMayNotUseIsNotDescribedAndGetsNoContext) {
  const auto devices = Described("GPU-a2a2a2a2-a2a2-a2a2-a2a2-a2a2a2a2a2a2,1");
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices[0].order, shm::kHiddenDevice);
  EXPECT_EQ(devices[1].order, 1u);
  EXPECT_EQ(devices[2].order, 0u);
  EXPECT_STREQ(devices[0].name, "");
  EXPECT_EQ(devices[0].uuid[0], 0);
  EXPECT_EQ(devices[0].total_memory_bytes, 0u);
  EXPECT_STREQ(devices[2].name, "Fake GPU");
  EXPECT_EQ(devices[2].can_access_peer, uint64_t{1} << 1) << "the hidden one is nobody's peer";
  EXPECT_EQ(num_contexts, (std::map<int, int>{{2, 1}})) << "each costs half a gigabyte";
}

TEST_F(SessionGpusTest, WithoutAGrantsGpusAllAreThereInTheirOrder) {
  const auto devices = Described("");
  ASSERT_EQ(devices.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(devices[i].order, i);
  EXPECT_EQ(devices[0].can_access_peer, 6u);
}

TEST_F(SessionGpusTest, LostOnesLeaveNone) {
  for (const auto& device : Described("GPU-b0b0b0b0-b0b0-b0b0-b0b0-b0b0b0b0b0b0")) {
    EXPECT_EQ(device.order, shm::kHiddenDevice);
  }
  EXPECT_TRUE(num_contexts.empty());
}

// Each is tried on a device of its own, where it is another error at most, and on a foreign one, where it is refused.
TEST_F(SessionGpusTest, NoCallReachesAForeignDevice) {
  const auto physical = [](uint32_t device) {
    const shm::PhysicalProperties properties{
        CU_MEM_ALLOCATION_TYPE_PINNED, 0, CU_MEM_LOCATION_TYPE_DEVICE, device, 0, 0, 0, 0};
    return Payload().Put(shm::CreatePhysical{properties, kPiece, 0});
  };
  struct Try {
    const char* what;
    std::function<Answer(ScriptedChannel&, uint32_t device)> call;
  };
  const Try tries[] = {
      {"a context's own call",
       [](auto& channel, uint32_t device) {
         return channel.Call(Op::kAllocate, Payload().Put(shm::Allocate{4096, 0, 0, 0}), device);
       }},
      {"another context",
       [](auto& channel, uint32_t device) {
         return channel.Call(Op::kOpenContext, Payload().Put(shm::OpenContext{64, device, 0, 0}), shm::kNoContext);
       }},
      {"the primary context",
       [](auto& channel, uint32_t device) {
         return channel.Call(Op::kOpenContext, Payload().Put(shm::OpenContext{device, device, 0, 0}), shm::kNoContext);
       }},
      {"a peer",
       [](auto& channel, uint32_t device) {
         return channel.Call(Op::kEnablePeer, Payload().Put(shm::EnablePeer{kOwn, device}), kOwn);
       }},
      {"a peer's peer",
       [](auto& channel, uint32_t device) {
         return channel.Call(Op::kEnablePeer, Payload().Put(shm::EnablePeer{device, kOwn}), kOwn);
       }},
      {"physical memory",
       [&](auto& channel, uint32_t device) { return channel.Call(Op::kCreatePhysical, physical(device), kOwn); }},
  };
  gpus_ = "2";
  size_t num_ended = 0;
  for (const Try& one : tries) {
    {
      const auto client = Connect();
      const auto channel = client->OpenChannel();
      const Answer own = one.call(*channel, kOwn);
      EXPECT_TRUE(own.arrived) << one.what;
      EXPECT_NE(own.result, static_cast<uint32_t>(CUDA_ERROR_INVALID_DEVICE)) << one.what;
      EXPECT_NE(own.result, static_cast<uint32_t>(CUDA_ERROR_INVALID_CONTEXT)) << one.what;
    }
    WaitForEnds(++num_ended);
    num_contexts.erase(static_cast<int>(kForeign));
    {
      const auto client = Connect();
      const auto channel = client->OpenChannel();
      const Answer foreign = one.call(*channel, kForeign);
      EXPECT_TRUE(!foreign.arrived || foreign.result == CUDA_ERROR_INVALID_DEVICE ||
                  foreign.result == CUDA_ERROR_INVALID_CONTEXT)
          << one.what << ": " << foreign.result;
    }
    WaitForEnds(++num_ended);
    EXPECT_FALSE(num_contexts.contains(static_cast<int>(kForeign))) << one.what;
  }
}

TEST_F(SessionGpusTest, NorDoesMemoryOfTheHost) {
  gpus_ = "2";
  const auto client = Connect();
  const auto own = client->Request(shm::SessionRequestKind::kAllocateHost, 4096, kOwn, 0);
  ASSERT_TRUE(own.has_value());
  EXPECT_FALSE(client->Request(shm::SessionRequestKind::kAllocateHost, 4096, kForeign, 0).has_value());
  WaitForEnds(1);
  EXPECT_FALSE(num_contexts.contains(static_cast<int>(kForeign)));
}

}  // namespace
}  // namespace tally::fakes
