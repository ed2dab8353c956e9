#include "client-shim/state/managed_variables.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

constexpr uint64_t kAddress = 0x500000000000;
constexpr uint64_t kBytes = 2 * 4096 + 100;

// A device with one managed variable, whose bytes copies move.
struct Device {
  explicit Device(FakeExecutor* executor) {
    ScriptKernel(executor);
    ScriptStreams(executor);
    executor->On(shm::Op::kGetGlobal, [](const FakeRequest&, FakeReply* reply) {
      reply->Append(shm::GlobalDescription{kAddress, kBytes, 1, 0});
    });
    executor->On(shm::Op::kCopy, [this, executor](const FakeRequest& request, FakeReply*) {
      const auto copy = request.Read<shm::Copy>();
      std::byte* arena = executor->arena(request.channel);
      if (copy.destination_place == static_cast<uint32_t>(shm::Place::kArena)) {
        std::memcpy(arena + copy.destination, &bytes[copy.source - kAddress], copy.size_bytes);
      } else {
        std::memcpy(&bytes[copy.destination - kAddress], arena + copy.source, copy.size_bytes);
        num_sent += copy.size_bytes;
      }
    });
  }
  std::vector<uint8_t> bytes = std::vector<uint8_t>(kBytes, 3);
  uint64_t num_sent = 0;
};

// Host and device have changed bytes of one piece since they last agreed: neither overwrites the other's.
TEST(ManagedVariables, ChangesOfBothSidesInOnePieceMeet) {
  FakeExecutor executor;
  Device device(&executor);
  int num_launches = 0;
  executor.On(shm::Op::kLaunch, [&](const FakeRequest&, FakeReply*) {
    if (num_launches++ != 0) return;
    for (const uint64_t at : {uint64_t{50}, uint64_t{200}, uint64_t{4095}, uint64_t{4096}, kBytes - 1})
      device.bytes[at] = 9;
  });
  EXPECT_EQ(
      RunInChild(executor.socket_path(),
                 [] {
                   if (Begin() != 0) return 1;
                   CUmodule module = nullptr;
                   CUfunction function = nullptr;
                   CUdeviceptr address = 0;
                   size_t size = 0;
                   const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
                   REQUIRE(SHIM(cuModuleLoadData)(&module, ptx) == CUDA_SUCCESS);
                   REQUIRE(SHIM(cuModuleGetFunction)(&function, module, "kernel") == CUDA_SUCCESS);
                   REQUIRE(SHIM(cuModuleGetGlobal_v2)(&address, &size, module, "variable") == CUDA_SUCCESS);
                   REQUIRE(address == kAddress && size == kBytes);
                   auto* host = reinterpret_cast<volatile uint8_t*>(address);
                   REQUIRE(host[0] == 3 && host[kBytes - 1] == 3);
                   int number = 0;
                   void* pointer = nullptr;
                   void* parameters[] = {&number, &pointer};
                   const auto launch = [&] {
                     return SHIM(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
                   };
                   REQUIRE(launch() == CUDA_SUCCESS);
                   host[100] = 5;
                   host[102] = 5;
                   host[2 * 4096 + 50] = 5;
                   REQUIRE(launch() == CUDA_SUCCESS);
                   REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                   for (const uint64_t at : {uint64_t{50}, uint64_t{200}, uint64_t{4095}, uint64_t{4096}, kBytes - 1})
                     REQUIRE(host[at] == 9);
                   for (const uint64_t at : {100, 102, 2 * 4096 + 50}) REQUIRE(host[at] == 5);
                   REQUIRE(host[101] == 3 && host[0] == 3);
                   return 0;
                 }),
      0);
  for (const uint64_t at : {100, 102, 2 * 4096 + 50}) EXPECT_EQ(device.bytes[at], 5) << at;
  for (const uint64_t at : {uint64_t{50}, uint64_t{200}, uint64_t{4095}, uint64_t{4096}, kBytes - 1})
    EXPECT_EQ(device.bytes[at], 9) << at;
}

TEST(ManagedVariables, WhatNobodyTouchedIsNotSent) {
  FakeExecutor executor;
  Device device(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUmodule module = nullptr;
                         CUstream stream = nullptr;
                         CUdeviceptr address = 0;
                         size_t size = 0;
                         const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
                         REQUIRE(SHIM(cuModuleLoadData)(&module, ptx) == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuModuleGetGlobal_v2)(&address, &size, module, "variable") == CUDA_SUCCESS);
                         auto* host = reinterpret_cast<volatile uint8_t*>(address);
                         REQUIRE(SHIM(cuStreamCreate)(&stream, 0) == CUDA_SUCCESS);
                         const auto work = [&] { return SHIM(cuMemsetD8Async)(address, 0, 1, stream); };
                         REQUIRE(work() == CUDA_SUCCESS);
                         host[10] = 1;
                         host[kBytes - 1] = 2;
                         REQUIRE(work() == CUDA_SUCCESS);
                         REQUIRE(work() == CUDA_SUCCESS);
                         REQUIRE(SHIM(cuCtxSynchronize)() == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
  EXPECT_EQ(device.num_sent, 2u);
  EXPECT_EQ(device.bytes[10], 1);
  EXPECT_EQ(device.bytes[kBytes - 1], 2);
}

// Contexts' numbers are used again; the stream of the one before has ended with it.
TEST(ManagedVariables, AContextThatBeginsAnewHasAnotherStream) {
  FakeExecutor executor;
  Device device(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
                         for (int life = 0; life < 2; ++life) {
                           if (Begin() != 0) return 1;
                           CUmodule module = nullptr;
                           CUdeviceptr address = 0;
                           size_t size = 0;
                           REQUIRE(SHIM(cuModuleLoadData)(&module, ptx) == CUDA_SUCCESS);
                           REQUIRE(SHIM(cuModuleGetGlobal_v2)(&address, &size, module, "variable") == CUDA_SUCCESS);
                           REQUIRE(SHIM(cuModuleUnload)(module) == CUDA_SUCCESS);
                           REQUIRE(SHIM(cuDevicePrimaryCtxReset_v2)(0) == CUDA_SUCCESS);
                         }
                         return 0;
                       }),
            0);
  std::vector<uint64_t> streams;
  for (const FakeRequest& request : executor.requests())
    if (request.op == static_cast<uint16_t>(shm::Op::kCopy)) streams.push_back(request.Read<shm::Copy>().stream);
  ASSERT_EQ(streams.size(), 2u);
  EXPECT_NE(streams[0], streams[1]);
}

}  // namespace
}  // namespace tally::client_shim
