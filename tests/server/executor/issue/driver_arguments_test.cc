#include "server/executor/issue/driver_arguments.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "server/executor/issue/kernel_code.h"

namespace tally::server {
namespace {

// Of `count` parameters of four bytes.
Kernel KernelOf(uint32_t count) {
  Kernel kernel;
  for (uint32_t i = 0; i < count; ++i) kernel.layout.push_back({4 * i, 4});
  kernel.parameter_bytes = 4 * count;
  return kernel;
}

PendingLaunch LaunchOf(Kernel& kernel, uint16_t flags = 0) {
  std::vector<uint32_t> values(kernel.parameter_bytes / 4);
  std::iota(values.begin(), values.end(), 7u);
  PendingLaunch launch;
  launch.kernel = &kernel;
  launch.flags = flags;
  launch.parameters.Assign(std::as_bytes(std::span(values)));
  launch.parameter_bytes = kernel.parameter_bytes;
  return launch;
}

uint32_t WordAt(const void* place) {
  uint32_t word = 0;
  std::memcpy(&word, place, sizeof(word));
  return word;
}

TEST(DriverArgumentsTest, ParametersAreWhereTheLaunchHasThemNow) {
  for (const uint32_t count : {1u, 3u, 64u, 65u, 127u, 128u, 500u}) {
    Kernel kernel = KernelOf(count);
    PendingLaunch first = LaunchOf(kernel);
    PendingLaunch launch = std::move(first);
    DriverArguments arguments(launch);
    ASSERT_EQ(arguments.extra(), nullptr);
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(arguments.parameters()[i], launch.parameters.data() + 4 * size_t{i});
      EXPECT_EQ(WordAt(arguments.parameters()[i]), 7 + i);
    }
    EXPECT_EQ(arguments.parameters()[count], nullptr);
  }
}

TEST(DriverArgumentsTest, AKernelWithoutParametersHasAnArrayAllTheSame) {
  Kernel kernel = KernelOf(0);
  PendingLaunch launch = LaunchOf(kernel);
  DriverArguments arguments(launch);
  EXPECT_NE(arguments.parameters(), nullptr);
}

TEST(DriverArgumentsTest, AGateThatIsNotUsedIsToldSo) {
  Kernel kernel = KernelOf(3);
  kernel.gate.emplace();
  kernel.gate->hidden_offset = 16;
  PendingLaunch launch = LaunchOf(kernel);
  DriverArguments arguments(launch);
  ASSERT_NE(arguments.parameters()[3], nullptr);
  EXPECT_EQ(WordAt(arguments.parameters()[3]), 0u);
}

// Whatever a form has left behind the program's own bytes.
TEST(DriverArgumentsTest, ABufferOfTheProgramsOwnEndsWhereItEndedOrBehindItsGate) {
  for (const bool has_gate : {false, true}) {
    Kernel kernel = KernelOf(3);
    if (has_gate) kernel.gate.emplace().hidden_offset = 16;
    PendingLaunch launch = LaunchOf(kernel, shm::kLaunchExtra);
    launch.parameters.Resize(200);
    std::memset(launch.parameters.data() + 12, 0xff, 188);
    DriverArguments arguments(launch);
    ASSERT_EQ(arguments.parameters(), nullptr);
    void** const extra = arguments.extra();
    const auto* bytes = static_cast<const std::byte*>(extra[1]);
    EXPECT_EQ(WordAt(bytes + 8), 9u);
    EXPECT_EQ(*static_cast<const size_t*>(extra[3]), has_gate ? 16 + sizeof(device::GateParameters) : size_t{12});
    if (!has_gate) continue;
    for (size_t i = 12; i < 16 + sizeof(device::GateParameters); ++i) EXPECT_EQ(bytes[i], std::byte{0}) << i;
  }
}

}  // namespace
}  // namespace tally::server
