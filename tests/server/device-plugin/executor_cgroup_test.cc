#include "server/device-plugin/executor_cgroup.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tally::device_plugin {
namespace {

using ::testing::HasSubstr;

// A directory takes the place of the mounted hierarchy; kubernetes_test.py has a real one.
class ExecutorCgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/tally-cgroup-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    root_ = path;
    directory_ = root_ + "/executors";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void MakeGroup() {
    std::filesystem::create_directory(directory_);
    std::ofstream(directory_ + "/cgroup.procs");
  }
  std::string Procs() const {
    std::stringstream text;
    text << std::ifstream(directory_ + "/cgroup.procs").rdbuf();
    return text.str();
  }

  std::string root_, directory_;
};

TEST_F(ExecutorCgroupTest, EachIsMovedOnce) {
  MakeGroup();
  ExecutorCgroup cgroup(directory_);
  EXPECT_TRUE(cgroup.Keep({71}).ok());
  EXPECT_EQ(Procs(), "71");
  MakeGroup();  // empties it
  EXPECT_TRUE(cgroup.Keep({71}).ok());
  EXPECT_EQ(Procs(), "");
  EXPECT_TRUE(cgroup.Keep({}).ok());
  EXPECT_TRUE(cgroup.Keep({71}).ok()) << "another one of that number";
  EXPECT_EQ(Procs(), "71");
}

TEST_F(ExecutorCgroupTest, WhatIsNoControlGroupIsOneSentenceAndGetsNoFile) {
  ExecutorCgroup cgroup(directory_);
  EXPECT_THAT(cgroup.Keep({71}).message(), HasSubstr("cannot move executors into the control group"));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/cgroup.procs"));
  MakeGroup();
  EXPECT_TRUE(cgroup.Keep({71}).ok());
  EXPECT_EQ(Procs(), "71");
  EXPECT_THAT(ExecutorCgroup("/nowhere/executors").Keep({1}).message(), HasSubstr("cannot make the control group"));
}

}  // namespace
}  // namespace tally::device_plugin
