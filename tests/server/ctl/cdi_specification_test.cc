#include "server/ctl/cdi_specification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

namespace tally::cli {
namespace {

using Json = nlohmann::json;
using ::testing::Contains;

Json Example(const std::string& socket = "/run/user/7/tally/tally.sock") {
  return Json::parse(CdiSpecification({"/opt/tally/lib/tally/client/libcuda.so.1", socket, {"/a/libcuda.so.1"}}));
}

std::string TargetOf(const Json& specification, const std::string& host_path) {
  for (const Json& mount : specification["containerEdits"]["mounts"]) {
    if (mount["hostPath"] == host_path) return mount["containerPath"];
  }
  return "";
}

// The fields and patterns of CDI's published schema (version 0.3.0); nothing else may be there.
void CheckEdits(const Json& edits) {
  for (const auto& [key, value] : edits.items()) {
    ASSERT_TRUE(key == "env" || key == "mounts") << key;
    ASSERT_TRUE(value.is_array());
  }
  for (const Json& variable : edits.value("env", Json::array())) {
    EXPECT_TRUE(std::regex_match(variable.get<std::string>(), std::regex("[A-Za-z_]+=.+"))) << variable;
  }
  for (const Json& mount : edits.value("mounts", Json::array())) {
    for (const auto& [key, value] : mount.items()) {
      ASSERT_TRUE(key == "hostPath" || key == "containerPath" || key == "options") << key;
    }
    EXPECT_EQ(mount["hostPath"].get<std::string>().front(), '/');
    EXPECT_EQ(mount["containerPath"].get<std::string>().front(), '/');
    for (const Json& option : mount["options"]) EXPECT_TRUE(option.is_string());
  }
}

TEST(CdiSpecification, OfAGrantIsThatTenantAndNothingThatAVariableSays) {
  const Json specification = Json::parse(
      CdiSpecification({"/c/libcuda.so.1", "/run/tally/grants/team-a/tally.sock", {"/a/libcuda.so.1"}, "team-a"}));
  ASSERT_EQ(specification["devices"].size(), 1u);
  EXPECT_EQ(specification["devices"][0]["name"], "team-a");
  EXPECT_EQ(specification.dump().find("TALLY_PRIORITY"), std::string::npos);
  EXPECT_EQ(TargetOf(specification, "/run/tally/grants/team-a"), "/run/tally");
}

TEST(CdiSpecification, KeepsToTheSchema) {
  const Json specification = Example();
  for (const auto& [key, value] : specification.items()) {
    EXPECT_TRUE(key == "cdiVersion" || key == "kind" || key == "devices" || key == "containerEdits") << key;
  }
  EXPECT_EQ(specification["cdiVersion"], "0.3.0");
  EXPECT_TRUE(std::regex_match(specification["kind"].get<std::string>(),
                               std::regex("[A-Za-z0-9][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z][A-Za-z0-9_-]*")));
  CheckEdits(specification["containerEdits"]);
  std::vector<std::string> names;
  for (const Json& device : specification["devices"]) {
    EXPECT_EQ(device.size(), 2u);
    names.push_back(device["name"]);
    EXPECT_TRUE(std::regex_match(names.back(), std::regex("[A-Za-z][A-Za-z0-9_.:-]*")));
    EXPECT_THAT(device["containerEdits"]["env"], Contains("TALLY_PRIORITY=" + names.back()));
    CheckEdits(device["containerEdits"]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"best-effort", "high"}));
}

TEST(CdiSpecification, PutsTheLibraryWhereProgramsLook) {
  const Json specification = Json::parse(CdiSpecification(
      {"/x/client/libcuda.so.1", "/run/tally/tally.sock", {std::begin(kImageLibraries), std::end(kImageLibraries)}}));
  std::vector<std::string> targets;
  for (const Json& mount : specification["containerEdits"]["mounts"]) {
    EXPECT_THAT(mount["options"], Contains("ro"));
    if (mount["hostPath"] == "/x/client/libcuda.so.1") targets.push_back(mount["containerPath"]);
  }
  EXPECT_EQ(targets, (std::vector<std::string>{"/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1"}));
}

// A private daemon's directory appears where programs look without any variable.
TEST(CdiSpecification, PutsTheSocketWhereProgramsLook) {
  EXPECT_EQ(TargetOf(Example(), "/run/user/7/tally"), "/run/tally");
  EXPECT_THAT(Example()["containerEdits"]["env"], Contains("TALLY_SOCKET=/run/tally/tally.sock"));
  EXPECT_THAT(Example("/x/mine.sock")["containerEdits"]["env"], Contains("TALLY_SOCKET=/run/tally/mine.sock"));
}

}  // namespace
}  // namespace tally::cli
