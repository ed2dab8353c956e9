#include "server/daemon/grant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "proto/control/executor_link_abi.h"

namespace tally::server {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

GrantSpec Named(const std::string& tenant) {
  GrantSpec spec;
  spec.tenant = tenant;
  return spec;
}

TEST(Grant, NamesThatLeadNowhereElse) {
  for (const char* name : {"a", "team-a", "A.b_c-9", "gpu.0.3"}) EXPECT_TRUE(CheckGrant(Named(name)).ok()) << name;
  const std::string longest(kMaxTenantLetters, 'x');
  EXPECT_TRUE(CheckGrant(Named(longest)).ok());
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("-a"), std::string("a\nb"),
        std::string("a\0b", 3), std::string("a@b"), longest + "x", std::string(100'000, 'x')}) {
    const Status checked = CheckGrant(Named(name));
    EXPECT_EQ(checked.code(), StatusCode::kInvalidArgument) << name.size();
    EXPECT_LT(checked.message().size(), 300u);
    EXPECT_EQ(checked.message().find('\n'), std::string::npos);
  }
}

TEST(Grant, ItsNamesFitIntoWhatExecutorsAreTold) {
  GrantSpec spec = Named(std::string(kMaxTenantLetters, 'x'));
  EXPECT_LT(spec.tenant.size(), sizeof(control::SessionIdentity::tenant_name));
  spec.domain_policy = DomainPolicy::kNamespace;
  spec.label_namespace = std::string(kMaxTenantLetters, 'x');
  ASSERT_TRUE(CheckGrant(spec).ok());
  const size_t of_client = shm::kDomainNameBytes - 1;
  EXPECT_LT(of_client + 1 + spec.DomainOwner().size(), control::kLinkDomainBytes);
}

TEST(Grant, WhatCannotBeKeptIsRefused) {
  GrantSpec spec = Named("a");
  spec.share = 0.3;
  EXPECT_TRUE(CheckGrant(spec).ok());
  EXPECT_EQ(spec.SharePermille(), 300u);
  spec.ceiling = shm::PriorityClass::kHighPriority;
  EXPECT_THAT(CheckGrant(spec).message(), HasSubstr("caps best-effort programs"));
  for (const double share : {-1.0, 0.0, 0.0001, 1.1, std::nan("")}) {
    spec.share = share;
    EXPECT_THAT(CheckGrant(spec).message(), HasSubstr("is not from 0.001 to 1"));
  }
  spec = Named("a");
  spec.device_memory_bytes = 1;
  spec.domain_policy = DomainPolicy::kShared;
  EXPECT_TRUE(CheckGrant(spec).ok());
}

TEST(Grant, GpusAreUuidsOrNumbers) {
  const std::string uuid = "GPU-00112233-4455-6677-8899-aabbccddeeff";
  GrantSpec spec = Named("a");
  spec.gpus = {uuid, "0", "63"};
  EXPECT_TRUE(CheckGrant(spec).ok());
  for (const std::string& wrong : {std::string(), std::string("64"), std::string("-1"), std::string("0,1"),
                                   std::string("GPU-1"), uuid + "0", uuid.substr(4), "gpu" + uuid.substr(3),
                                   std::string("GPU-0011223344556677-8899-aabbccddeeff-"), std::string(1 << 20, '1')}) {
    spec.gpus = {wrong};
    const Status checked = CheckGrant(spec);
    EXPECT_THAT(checked.message(), HasSubstr("names no GPU")) << wrong.size();
    EXPECT_LT(checked.message().size(), 300u);
  }
  spec.gpus = {"1", "0", "1"};
  EXPECT_THAT(CheckGrant(spec).message(), HasSubstr("there twice"));
  spec.gpus.clear();
  for (size_t i = 0; i < control::kMaxGrantedGpus; ++i)
    spec.gpus.push_back(uuid.substr(0, 38) + std::to_string(10 + i));
  EXPECT_TRUE(CheckGrant(spec).ok());
  EXPECT_LT(control::JoinedGpus(spec.gpus).size(), sizeof(control::SessionIdentity::gpus));
  spec.gpus.emplace_back("0");
  EXPECT_THAT(CheckGrant(spec).message(), HasSubstr("17 GPUs: 16 may be"));
}

TEST(Grant, NobodyIsNoOwner) {
  GrantSpec spec = Named("a");
  spec.owner_uid = 0;
  EXPECT_TRUE(CheckGrant(spec).ok());
  spec.owner_uid = UINT32_MAX;
  EXPECT_THAT(CheckGrant(spec).message(), HasSubstr("no user's number"));
  const auto none = GrantFromJson(Json::parse(R"({"tenant": "a"})"));
  EXPECT_FALSE(none->owner_uid.has_value());
}

TEST(Grant, ANamespaceIsTheOwnersNameSoItIsLikeATenants) {
  GrantSpec spec = Named("a");
  spec.domain_policy = DomainPolicy::kNamespace;
  for (const char* name : {"", "../b", "a/b"}) {
    spec.label_namespace = name;
    EXPECT_FALSE(CheckGrant(spec).ok()) << name;
  }
  spec.label_namespace = "blue";
  EXPECT_TRUE(CheckGrant(spec).ok());
  EXPECT_NE(spec.DomainOwner(), Named("namespace/blue").DomainOwner().substr(10)) << "no tenant's name";
}

TEST(Grant, ComesBackFromItsJson) {
  GrantSpec spec{"a",       shm::PriorityClass::kHighPriority, 200, 3,       1 << 20, 0.5,
                 {"GPU-1"}, DomainPolicy::kNamespace,          "n", "p\"\\", "c",     1000};
  const auto back = GrantFromJson(Json::parse(ToJson(spec).dump()));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(*back, spec);
}

TEST(Grant, WrongTypesAndUnknownKeysAreNamed) {
  const auto problem = [](const char* text) {
    const auto spec = GrantFromJson(Json::parse(text));
    return spec ? "none" : spec.error().message();
  };
  EXPECT_THAT(problem(R"({"tenant": 3})"), HasSubstr("'tenant' must be a string"));
  EXPECT_THAT(problem(R"({"weight": -1})"), HasSubstr("'weight' must be"));
  EXPECT_THAT(problem(R"({"weight": 4294967297})"), HasSubstr("'weight' must be"));
  EXPECT_THAT(problem(R"({"level": 1.5})"), HasSubstr("'level' must be"));
  EXPECT_THAT(problem(R"({"gpus": [1]})"), HasSubstr("a list of strings"));
  EXPECT_THAT(problem(R"({"owner": -1})"), HasSubstr("'owner' must be"));
  EXPECT_THAT(problem(R"({"owner": "root"})"), HasSubstr("'owner' must be"));
  EXPECT_THAT(problem(R"({"domain": "mine"})"), HasSubstr("no domain policy"));
  EXPECT_THAT(problem(R"({"pid": 1})"), HasSubstr("a grant has no 'pid'"));
  EXPECT_EQ(problem(R"({"tenant": "a"})"), "none");
}

TEST(Grant, SeveralHaveNamesOfTheirOwnAndRoomForTheirSockets) {
  EXPECT_TRUE(CheckGrants({Named("a"), Named("b")}, "/run/tally").ok());
  EXPECT_THAT(CheckGrants({Named("a"), Named("a")}, "/run/tally").message(), HasSubstr("twice"));
  EXPECT_THAT(CheckGrants({Named("a")}, std::string(100, 'd')).message(), HasSubstr("too long"));
}

}  // namespace
}  // namespace tally::server
