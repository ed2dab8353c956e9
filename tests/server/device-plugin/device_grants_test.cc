#include "server/device-plugin/device_grants.h"

#include <gmock/gmock.h>

namespace tally::device_plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

const Resource kGpus{"tally.dev/gpu", "tally-gpu.sock", "gpu-", false, 4, 0};

class FakeTallyd final : public Tallyd {
 public:
  Result<std::string> Driver() override { return "sim"; }
  Result<std::vector<pid_t>> Executors() override { return std::vector<pid_t>{}; }
  Result<std::map<std::string, Holder>> Grants() override {
    if (is_silent) return Error(StatusCode::kUnavailable, "silent");
    return grants;
  }
  Result<std::string> CreateGrant(const std::string& tenant, const Resource&, const std::string& gpu) override {
    calls.push_back("create " + tenant + (gpu.empty() ? "" : " on " + gpu));
    if (is_silent) return Error(StatusCode::kUnavailable, "silent");
    grants[tenant] = {};
    return "/run/tally/grants/" + tenant + "/tally.sock";
  }
  Status LabelGrant(const std::string& tenant, const Holder& holder) override {
    calls.push_back("label " + tenant);
    if (holder.pod == "refused") return Status(StatusCode::kInvalidArgument, "refused");
    grants[tenant] = holder;
    return OkStatus();
  }
  Status RevokeGrant(const std::string& tenant) override {
    calls.push_back("revoke " + tenant);
    if (is_silent) return Status(StatusCode::kUnavailable, "silent");
    return grants.erase(tenant) > 0 ? OkStatus() : Status(StatusCode::kNotFound, "none");
  }

  std::map<std::string, Holder> grants;
  std::vector<std::string> calls;
  bool is_silent = false;
};

class DeviceGrantsTest : public ::testing::Test {
 protected:
  FakeTallyd tallyd_;
  DeviceGrants grants_{tallyd_};
  const Holder pod_{"ns", "pod", "c"};
};

TEST_F(DeviceGrantsTest, GivenOutAgainItIsAFreshGrantWithoutTheOldLabels) {
  EXPECT_EQ(*grants_.GiveOut(kGpus, "a"), "/run/tally/grants/gpu-a/tally.sock");
  EXPECT_TRUE(grants_.Learn(kGpus, {{"a", pod_}}).ok());
  tallyd_.calls.clear();
  ASSERT_TRUE(grants_.GiveOut(kGpus, "a").has_value());
  EXPECT_THAT(tallyd_.calls, ElementsAre("revoke gpu-a", "create gpu-a"));
  EXPECT_EQ(tallyd_.grants["gpu-a"], Holder{});
}

TEST_F(DeviceGrantsTest, AGrantIsOfTheDevicesOwnGpu) {
  const std::string gpu = "GPU-00112233-4455-6677-8899-aabbccddeeff";
  ASSERT_TRUE(grants_.GiveOut(kGpus, gpu + "-3").has_value());
  EXPECT_THAT(tallyd_.calls, ElementsAre("revoke gpu-" + gpu + "-3", "create gpu-" + gpu + "-3 on " + gpu));
}

TEST_F(DeviceGrantsTest, OneThatCannotBeRevokedIsNotGivenOut) {
  tallyd_.is_silent = true;
  EXPECT_EQ(grants_.GiveOut(kGpus, "a").error().code(), StatusCode::kUnavailable);
  EXPECT_THAT(tallyd_.calls, ElementsAre("revoke gpu-a"));
}

TEST_F(DeviceGrantsTest, APodIsLabelledOnceAndOnlyANewOneAgain) {
  ASSERT_TRUE(grants_.GiveOut(kGpus, "a").has_value());
  tallyd_.calls.clear();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(grants_.Learn(kGpus, {{"a", pod_}}).ok());
  EXPECT_THAT(tallyd_.calls, ElementsAre("label gpu-a"));
  EXPECT_TRUE(grants_.Learn(kGpus, {{"a", {"ns", "other", "c"}}}).ok());
  EXPECT_EQ(tallyd_.calls.size(), 2u);
}

TEST_F(DeviceGrantsTest, AListWithoutAPodEndsNobody) {
  ASSERT_TRUE(grants_.GiveOut(kGpus, "a").has_value());
  EXPECT_TRUE(grants_.Learn(kGpus, {}).ok());
  EXPECT_TRUE(grants_.Learn(kGpus, {{"b", pod_}}).ok());
  EXPECT_TRUE(tallyd_.grants.contains("gpu-a"));
}

TEST_F(DeviceGrantsTest, WhatARestartTookIsMadeAgainAndWhatWasRevokedIsNot) {
  EXPECT_TRUE(grants_.Learn(kGpus, {{"a", pod_}}).ok());
  EXPECT_THAT(tallyd_.grants, ElementsAre(Pair("gpu-a", pod_)));
  tallyd_.grants.clear();
  EXPECT_TRUE(grants_.Learn(kGpus, {{"a", pod_}}).ok());
  EXPECT_THAT(tallyd_.grants, IsEmpty());
  // Also one that an earlier plugin gave out.
  tallyd_.grants["gpu-b"] = pod_;
  EXPECT_TRUE(grants_.Learn(kGpus, {{"b", pod_}}).ok());
  tallyd_.grants.clear();
  EXPECT_TRUE(grants_.Learn(kGpus, {{"b", pod_}}).ok());
  EXPECT_THAT(tallyd_.grants, IsEmpty());
}

TEST_F(DeviceGrantsTest, OneLabelThatIsRefusedKeepsNoOtherBack) {
  for (const char* device : {"a", "b"}) ASSERT_TRUE(grants_.GiveOut(kGpus, device).has_value());
  EXPECT_EQ(grants_.Learn(kGpus, {{"a", {"ns", "refused", "c"}}, {"b", pod_}}).message(), "refused");
  EXPECT_EQ(tallyd_.grants["gpu-b"], pod_);
}

TEST_F(DeviceGrantsTest, ATallydThatWasSilentIsAskedAgain) {
  tallyd_.is_silent = true;
  EXPECT_FALSE(grants_.Learn(kGpus, {{"a", pod_}}).ok());
  tallyd_.is_silent = false;
  EXPECT_TRUE(grants_.Learn(kGpus, {{"a", pod_}}).ok());
  EXPECT_THAT(tallyd_.grants, ElementsAre(Pair("gpu-a", pod_)));
}

}  // namespace
}  // namespace tally::device_plugin
