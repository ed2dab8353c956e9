#include "server/executor/issue/gated_transfers.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <numeric>
#include <vector>

#include "server/executor/issue/gated_queue.h"
#include "tests/server/executor/issue/sim_device.h"

namespace tally::server {
namespace {

constexpr uint64_t kBytes = 100'000;  // several pieces, the last one short
constexpr uint64_t kRoom = kBytes + 64;
using Bytes = std::vector<uint8_t>;

// Without a queue: gates let all pass whose parameters are zeros.
class GatedTransfersTest : public SimDeviceTest {
 protected:
  void SetUp() override {
    SimDeviceTest::SetUp();
    transfers_.emplace(driver_);
    ASSERT_EQ(transfers_->Load(), CUDA_SUCCESS);
    to_ = ZeroedMemory(kRoom);
    from_ = ZeroedMemory(kRoom);
    std::iota(before_.begin(), before_.end(), 1);
  }
  void TearDown() override {
    transfers_.reset();
    SimDeviceTest::TearDown();
  }
  void Write(CUdeviceptr to, const Bytes& bytes) {
    ASSERT_EQ(driver_.cuMemcpyHtoDAsync_v2(to, bytes.data(), bytes.size(), nullptr), CUDA_SUCCESS);
    ASSERT_EQ(driver_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  }
  // What is at to_ after the transfer, if `before_` was there.
  Bytes Run(const Transfer& transfer) {
    Write(to_, before_);
    GatedForm form;
    PendingLaunch launch = transfers_->LaunchOf(transfer, &form);
    launch.parameters.Resize(form.hidden_offset + sizeof(device::GateParameters));
    size_t size_bytes = form.hidden_offset + sizeof(device::GateParameters);
    const device::GateParameters none{};
    std::memcpy(launch.parameters.data() + form.hidden_offset, &none, sizeof(none));
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, launch.parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &size_bytes,
                     CU_LAUNCH_PARAM_END};
    EXPECT_EQ(driver_.cuLaunchKernel(form.function, launch.shape.grid[0], 1, 1, launch.shape.block[0], 1, 1, 0, nullptr,
                                     nullptr, extra),
              CUDA_SUCCESS);
    Bytes after(kRoom);
    EXPECT_EQ(driver_.cuMemcpyDtoHAsync_v2(after.data(), to_, kRoom, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(driver_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    return after;
  }

  std::optional<GatedTransfers> transfers_;
  CUdeviceptr to_ = 0, from_ = 0;
  Bytes before_ = Bytes(kRoom);
};

TEST_F(GatedTransfersTest, AFillIsAsTheDriversWhateverItsElementsAndPlace) {
  for (const uint32_t element_bytes : {1u, 2u, 4u}) {
    for (const uint64_t offset : {uint64_t{0}, uint64_t{element_bytes}, uint64_t{16}}) {
      for (const uint64_t size : {uint64_t{element_bytes}, uint64_t{32'768}, kBytes, kBytes - 4 * element_bytes}) {
        const Transfer fill{.to = to_ + offset, .row_bytes = size, .value = 0xA1B2C3D4, .element_bytes = element_bytes};
        ASSERT_TRUE(transfers_->Takes(fill));
        const Bytes after = Run(fill);
        Bytes expected = before_;
        for (uint64_t i = 0; i < size; ++i) {
          expected[offset + i] = static_cast<uint8_t>(0xA1B2C3D4 >> 8 * (i % element_bytes));
        }
        EXPECT_EQ(after, expected) << element_bytes << " bytes, at " << offset << ", " << size;
      }
    }
  }
}

TEST_F(GatedTransfersTest, ACopyIsExactHoweverItIsAligned) {
  Bytes source(kRoom);
  std::iota(source.begin(), source.end(), 77);
  Write(from_, source);
  for (const auto& [to, from, size] : std::vector<std::array<uint64_t, 3>>{
           {0, 0, kBytes}, {0, 0, kBytes - 12}, {4, 8, kBytes}, {3, 0, kBytes}, {0, 5, 1}, {16, 32, 65'536}}) {
    const Bytes after = Run({.to = to_ + to, .from = from_ + from, .row_bytes = size});
    Bytes expected = before_;
    for (uint64_t i = 0; i < size; ++i) expected[to + i] = source[from + i];
    EXPECT_EQ(after, expected) << "to " << to << ", from " << from << ", " << size;
  }
}

TEST_F(GatedTransfersTest, WhatCodeDoesNotLoadForIsNotTaken) {
  const GatedTransfers never_loaded(driver_);
  EXPECT_FALSE(never_loaded.Takes({.to = to_, .row_bytes = 4, .element_bytes = 4}));
}

}  // namespace
}  // namespace tally::server
