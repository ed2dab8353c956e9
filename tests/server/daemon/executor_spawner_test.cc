#include "server/daemon/executor_spawner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

class ResolveDriverTest : public ::testing::Test {
 protected:
  void AddDevice(const std::string& name) { std::ofstream(directory_ + "/" + name) << "x"; }

  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
};

TEST_F(ResolveDriverTest, AutoIsTheSoftwareDriverWithoutAGpu) {
  AddDevice("nvidiactl");  // the driver is there, a GPU is not
  AddDevice("null");
  const ResolvedDriver resolved = ResolveDriver(DriverChoice::kAuto, directory_);
  EXPECT_EQ(resolved.driver, DriverChoice::kSim);
  EXPECT_THAT(resolved.reason, ::testing::HasSubstr("no NVIDIA GPU"));
}

TEST_F(ResolveDriverTest, AutoIsTheRealDriverWithAGpu) {
  AddDevice("nvidia7");
  EXPECT_EQ(ResolveDriver(DriverChoice::kAuto, directory_).driver, DriverChoice::kCuda);
}

TEST_F(ResolveDriverTest, WhatWasAskedForIsNotSecondGuessed) {
  AddDevice("nvidia0");
  EXPECT_EQ(ResolveDriver(DriverChoice::kSim, directory_).driver, DriverChoice::kSim);
  EXPECT_EQ(ResolveDriver(DriverChoice::kCuda, "/nowhere").driver, DriverChoice::kCuda);
}

TEST(ExecutorSpawner, SaysWhichProgramIsMissing) {
  DaemonConfig config;
  config.executor_path = "/nowhere/tally-executor";
  const auto spawner = ExecutorSpawner::Create(config, DriverChoice::kSim, "/x");
  ASSERT_FALSE(spawner);
  EXPECT_EQ(spawner.error().code(), StatusCode::kNotFound);
  EXPECT_THAT(spawner.error().message(), ::testing::HasSubstr("/nowhere/tally-executor"));
}

}  // namespace
}  // namespace tally::server
