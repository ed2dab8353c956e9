#include "server/ctl/gpu_readings.h"

#include <gtest/gtest.h>

namespace tally::cli {
namespace {

TEST(GpuReadings, AreNoneWithoutNvml) {
  EXPECT_TRUE(GpuReadings("libtally-no-such-library.so.1").Read().empty());
  EXPECT_TRUE(GpuReadings("libc.so.6").Read().empty()) << "a library that is not NVML";
}

TEST(GpuReadings, HaveWhatEachGpuSays) {
  const auto readings = GpuReadings(TALLY_SCRIPTED_NVML).Read();
  ASSERT_EQ(readings.size(), 2u) << "the second of three is lost";
  EXPECT_EQ(readings[0].name, "NVIDIA Scripted");
  EXPECT_EQ(readings[0].uuid, "GPU-0");
  EXPECT_EQ(readings[0].utilization_percent, 63u);
  EXPECT_EQ(readings[0].used_bytes, 13ull << 30);
  EXPECT_EQ(readings[0].total_bytes, 80ull << 30);
  EXPECT_EQ(readings[0].celsius, 54u);
  EXPECT_EQ(readings[0].watts, 412u);
  EXPECT_EQ(readings[1].index, 2u);
  EXPECT_FALSE(readings[1].watts) << "it does not say";
}

}  // namespace
}  // namespace tally::cli
