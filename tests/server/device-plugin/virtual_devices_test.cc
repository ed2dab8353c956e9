#include "server/device-plugin/virtual_devices.h"

#include <gmock/gmock.h>

namespace tally::device_plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

Resource Gpus(int devices_per_gpu) { return {"tally.dev/gpu", "tally-gpu.sock", "gpu-", false, devices_per_gpu, 0}; }

TEST(GpuRosterTest, AGpuThatIsGoneStaysAsLost) {
  GpuRoster roster;
  EXPECT_TRUE(roster.See({"GPU-a", "GPU-b"}));
  EXPECT_FALSE(roster.See({"GPU-b", "GPU-a"}));
  EXPECT_TRUE(roster.See({"GPU-b"}));
  EXPECT_THAT(roster.gpus(), ElementsAre(Pair("GPU-a", false), Pair("GPU-b", true)));
  EXPECT_FALSE(roster.See({"GPU-b"}));
  EXPECT_TRUE(roster.See({"GPU-a", "GPU-b"}));
}

TEST(VirtualDevicesTest, SoManyOfEachGpuWithItsHealth) {
  EXPECT_THAT(
      DevicesOf(Gpus(2), {{"GPU-a", true}, {"GPU-b", false}}),
      ElementsAre(Pair("GPU-a-0", true), Pair("GPU-a-1", true), Pair("GPU-b-0", false), Pair("GPU-b-1", false)));
  EXPECT_TRUE(DevicesOf(Gpus(0), {{"GPU-a", true}}).empty());
}

TEST(VirtualDevicesTest, TheLongestNameIsStillATenants) {
  Resource high{"tally.dev/gpu-high", "", "gpu-high-", true, kMostDevicesPerGpu, 0};
  const std::string uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef";
  for (const auto& [device, is_well] : DevicesOf(high, {{uuid, true}})) EXPECT_LE(TenantOf(high, device).size(), 63u);
}

TEST(VirtualDevicesTest, AWishIsOneDeviceThatIsWell) {
  const auto devices = DevicesOf(Gpus(2), {{"GPU-a", true}, {"GPU-b", false}});
  EXPECT_TRUE(CheckWish(Gpus(2), {"GPU-a-1"}, devices).ok());
  EXPECT_EQ(CheckWish(Gpus(2), {"GPU-b-1"}, devices).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(CheckWish(Gpus(2), {}, devices).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckWish(Gpus(2), {"GPU-a-0", "GPU-a-1"}, devices).code(), StatusCode::kInvalidArgument);
  for (const char* id : {"", "-1", "GPU-a", "GPU-a-2", "GPU-a--1", "GPU-a-00", " GPU-a-0", "../GPU-a-0"}) {
    EXPECT_EQ(CheckWish(Gpus(2), {id}, devices).code(), StatusCode::kNotFound) << id;
  }
}

TEST(VirtualDevicesTest, WhatWasSentDoesNotBreakTheSentence) {
  const Status status = CheckWish(Gpus(1), {"a\nb\x01\xff" + std::string(10'000, 'x')}, {});
  EXPECT_THAT(status.message(), HasSubstr("'a?b??xxx"));
  EXPECT_LT(status.message().size(), 200u);
}

}  // namespace
}  // namespace tally::device_plugin
