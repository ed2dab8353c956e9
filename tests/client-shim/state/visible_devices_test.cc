#include "client-shim/state/visible_devices.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <expected>
#include <span>
#include <vector>

namespace tally::client_shim {
namespace {

std::vector<shm::DeviceDescription> ThreeDevices() {
  std::vector<shm::DeviceDescription> devices(3);
  for (int i = 0; i < 3; ++i) {
    for (auto& byte : devices[i].uuid) byte = static_cast<uint8_t>(0x10 * (i + 1));
  }
  devices[2].uuid[15] = 0x31;
  return devices;
}

TEST(VisibleDevices, AGrantsGpusInItsOrderAreAllThatThereAre) {
  auto devices = ThreeDevices();
  devices[0].order = 1;
  devices[1].order = shm::kHiddenDevice;
  devices[2].order = 0;
  const auto visible = [&](const char* filter) { return VisibleDevices(filter, devices); };
  EXPECT_EQ(visible(nullptr), (std::vector<int>{2, 0}));
  EXPECT_EQ(visible("0"), std::vector<int>{2});
  EXPECT_EQ(visible("1,0"), (std::vector<int>{0, 2}));
  EXPECT_EQ(visible("2"), std::vector<int>{});
  EXPECT_EQ(visible("GPU-2020"), std::vector<int>{});  // the hidden one
  EXPECT_EQ(visible("GPU-3030"), std::vector<int>{2});
  for (auto& device : devices) device.order = shm::kHiddenDevice;
  EXPECT_EQ(visible(nullptr), std::vector<int>{});
}

TEST(VisibleDevices, ReadsTheVariableAsTheDriverDoes) {
  const auto devices = ThreeDevices();
  const auto visible = [&](const char* filter) { return VisibleDevices(filter, devices); };
  EXPECT_EQ(visible(nullptr), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(visible(""), std::vector<int>{});
  EXPECT_EQ(visible("2,0"), (std::vector<int>{2, 0}));
  EXPECT_EQ(visible(" 1 "), std::vector<int>{1});
  EXPECT_EQ(visible("1,7,0"), std::vector<int>{1});  // ends at the first that is none
  EXPECT_EQ(visible("-1"), std::vector<int>{});
  EXPECT_EQ(visible("0,0"), std::unexpected(CUDA_ERROR_INVALID_DEVICE));
  EXPECT_EQ(visible("0,GPU-1010"), std::unexpected(CUDA_ERROR_INVALID_DEVICE));
  EXPECT_EQ(visible("0,7,0"), std::vector<int>{0});  // ends before it
  EXPECT_EQ(visible("GPU-2020,0"), (std::vector<int>{1, 0}));
  EXPECT_EQ(visible("GPU-"), std::vector<int>{});  // more than one
  EXPECT_EQ(VisibleDevices("GPU-", std::span(devices).first(2)), std::vector<int>{});
  EXPECT_EQ(VisibleDevices("GPU-", std::span(devices).first(1)), std::vector<int>{0});
  EXPECT_EQ(visible("x"), std::vector<int>{});
}

}  // namespace
}  // namespace tally::client_shim
