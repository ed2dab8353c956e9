#include "server/daemon/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace tally::server {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kUser = 1000;

std::optional<shm::PriorityClass> NoDomains(const Domain&) { return std::nullopt; }

class PlacementTest : public ::testing::Test {
 protected:
  PlacementTest() {
    config_.allowed_uids = UidSet{true, {}};
    config_.high_priority_uids = UidSet{};
    grant_.tenant = "team-a";
  }

  static shm::HelloRequest Asking(shm::PriorityClass priority_class, const char* domain = "") {
    shm::HelloRequest hello{};
    hello.priority_class = static_cast<uint32_t>(priority_class);
    std::strncpy(hello.domain_name, domain, sizeof(hello.domain_name) - 1);
    return hello;
  }
  Result<Placement> PlaceWithGrant(const shm::HelloRequest& hello, uid_t uid = 0) {
    return Place(hello, {uid, true, &grant_}, config_, NoDomains);
  }
  // The class, or the code of the refusal.
  std::string ClassOf(const Asker& asker, shm::PriorityClass asked) {
    const auto placed = Place(Asking(asked), asker, config_, NoDomains);
    return placed ? PriorityClassName(placed->session_class) : std::string(StatusCodeName(placed.error().code()));
  }

  DaemonConfig config_;
  GrantSpec grant_;
};

TEST_F(PlacementTest, AGrantIsACeilingAlsoForRootOfTheMachine) {
  const auto forged = PlaceWithGrant(Asking(shm::PriorityClass::kHighPriority));
  ASSERT_FALSE(forged);
  EXPECT_EQ(forged.error().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(forged.error().message(), HasSubstr("tenant 'team-a'"));
  EXPECT_FALSE(PlaceWithGrant(Asking(shm::PriorityClass::kDefault, "high"))) << "the name of a domain is a class, too";
}

TEST_F(PlacementTest, WhoAsksForNothingGetsAllThatItsGrantHas) {
  grant_.ceiling = shm::PriorityClass::kHighPriority;
  grant_.level = 5;
  grant_.weight = 300;
  config_.default_priority = shm::PriorityClass::kBestEffort;
  const auto high = PlaceWithGrant(Asking(shm::PriorityClass::kDefault));
  ASSERT_TRUE(high);
  EXPECT_EQ(high->session_class, shm::PriorityClass::kHighPriority);
  EXPECT_EQ(high->level, 5u);
  EXPECT_EQ(high->weight, scheduler::kDefaultWeight) << "policies may refuse what they ignore";
  const auto low = PlaceWithGrant(Asking(shm::PriorityClass::kBestEffort));
  ASSERT_TRUE(low);
  EXPECT_EQ(low->weight, 300u);
  EXPECT_EQ(low->level, 0u);
}

TEST_F(PlacementTest, ListsOfUsersAreNotForWhoHasAGrant) {
  config_.high_priority_uids = UidSet{true, {}};
  EXPECT_FALSE(PlaceWithGrant(Asking(shm::PriorityClass::kHighPriority), kUser));
  config_.default_priority = shm::PriorityClass::kHighPriority;
  EXPECT_EQ(PlaceWithGrant(Asking(shm::PriorityClass::kDefault), kUser)->session_class,
            shm::PriorityClass::kBestEffort);
}

TEST_F(PlacementTest, RootOfAContainerIsNobodysExemption) {
  const Asker machine{0, true, nullptr}, container{0, false, nullptr};
  EXPECT_EQ(ClassOf(machine, shm::PriorityClass::kHighPriority), "high");
  EXPECT_EQ(ClassOf(container, shm::PriorityClass::kHighPriority), "PERMISSION_DENIED");
  EXPECT_EQ(ClassOf(container, shm::PriorityClass::kDefault), "best-effort");
  config_.high_priority_uids = UidSet{false, {0, kUser}};
  EXPECT_EQ(ClassOf(container, shm::PriorityClass::kHighPriority), "PERMISSION_DENIED")
      << "number 0 is root of the machine";
  EXPECT_EQ(ClassOf({kUser, false, nullptr}, shm::PriorityClass::kHighPriority), "high");
  config_.high_priority_uids = UidSet{true, {}};
  EXPECT_EQ(ClassOf(container, shm::PriorityClass::kHighPriority), "high") << "anybody";
}

TEST_F(PlacementTest, WhoMayHaveSessions) {
  config_.allowed_uids = UidSet{false, {kUser}};
  EXPECT_TRUE(MayHaveSessions({kUser, false, nullptr}, 5, config_));
  EXPECT_TRUE(MayHaveSessions({5, false, nullptr}, 5, config_)) << "the daemon's own";
  EXPECT_TRUE(MayHaveSessions({0, true, nullptr}, 5, config_));
  EXPECT_FALSE(MayHaveSessions({0, false, nullptr}, 5, config_));
  EXPECT_FALSE(MayHaveSessions({0, false, nullptr}, 0, config_)) << "a daemon of root's is not that root's";
  EXPECT_FALSE(MayHaveSessions({7, false, nullptr}, 5, config_));
}

TEST_F(PlacementTest, TheDomainIsTheTenantsWhoeverItsUserIs) {
  const auto a = PlaceWithGrant(Asking(shm::PriorityClass::kDefault), 0),
             b = PlaceWithGrant(Asking(shm::PriorityClass::kDefault), kUser);
  EXPECT_TRUE(a->domain.SameAs(b->domain));
  const auto none = Place(Asking(shm::PriorityClass::kDefault), {0, true, nullptr}, config_, NoDomains);
  EXPECT_FALSE(a->domain.SameAs(none->domain));
  grant_.tenant = "team-b";
  EXPECT_FALSE(a->domain.SameAs(PlaceWithGrant(Asking(shm::PriorityClass::kDefault))->domain));
}

TEST_F(PlacementTest, ATenantAloneThatIsNeverHighSharesNoContextWithHighWork) {
  config_.share_contexts = true;
  EXPECT_EQ(PlaceWithGrant(Asking(shm::PriorityClass::kDefault))->domain.priority_class,
            shm::PriorityClass::kBestEffort);
  grant_.ceiling = shm::PriorityClass::kHighPriority;
  EXPECT_EQ(PlaceWithGrant(Asking(shm::PriorityClass::kBestEffort))->domain.name, kMixedDomain);
}

TEST_F(PlacementTest, TheSmallerOfTwoQuotasCounts) {
  grant_.device_memory_bytes = 100;
  grant_.share = 0.5;
  shm::HelloRequest hello = Asking(shm::PriorityClass::kDefault);
  EXPECT_EQ(PlaceWithGrant(hello)->device_memory_bytes, 100u);
  EXPECT_EQ(PlaceWithGrant(hello)->share_permille, 500u);
  hello.device_memory_bytes = 300;
  hello.share_permille = 900;
  EXPECT_EQ(PlaceWithGrant(hello)->device_memory_bytes, 100u);
  EXPECT_EQ(PlaceWithGrant(hello)->share_permille, 500u);
  hello.device_memory_bytes = 20;
  hello.share_permille = 10;
  EXPECT_EQ(PlaceWithGrant(hello)->device_memory_bytes, 20u);
  EXPECT_EQ(PlaceWithGrant(hello)->share_permille, 10u);
}

TEST_F(PlacementTest, AShareIsOfBestEffortProgramsAndNotMoreThanAll) {
  grant_.ceiling = shm::PriorityClass::kHighPriority;
  shm::HelloRequest hello = Asking(shm::PriorityClass::kDefault);
  hello.share_permille = 300;
  EXPECT_EQ(PlaceWithGrant(hello).error().code(), StatusCode::kInvalidArgument);
  hello.priority_class = static_cast<uint16_t>(shm::PriorityClass::kBestEffort);
  EXPECT_TRUE(PlaceWithGrant(hello));
  hello.share_permille = 1001;
  EXPECT_FALSE(PlaceWithGrant(hello));
}

TEST(Domain, ComesBackFromTheWire) {
  for (const Domain& domain :
       {Domain{"high", 1000, shm::PriorityClass::kHighPriority},
        Domain{"mine", control::kSharedDomain, shm::PriorityClass::kBestEffort, false, false, "team-a"},
        Domain{"best-effort", control::kSharedDomain, shm::PriorityClass::kBestEffort, false, false,
               "namespace/blue"}}) {
    const Domain back = Domain::FromWire(domain.WireName(), domain.owner_uid, domain.priority_class);
    EXPECT_TRUE(back.SameAs(domain)) << domain.Label();
    EXPECT_EQ(back.Label(), domain.Label());
  }
}

shm::HelloRequest OfRank(shm::OwnDomain own_domain, uint16_t rank, const char* job) {
  shm::HelloRequest hello{};
  hello.own_domain = static_cast<uint8_t>(own_domain);
  hello.rank = rank;
  std::strncpy(hello.domain_name, job, sizeof(hello.domain_name) - 1);
  return hello;
}

TEST_F(PlacementTest, ARankHasADomainOfItsOwn) {
  const auto domain_of = [&](const shm::HelloRequest& hello, uid_t uid) {
    return Place(hello, {uid, false, nullptr, 5}, config_, NoDomains)->domain;
  };
  const auto rank = [](uint16_t number, const char* job) { return OfRank(shm::OwnDomain::kRank, number, job); };
  const Domain domain = domain_of(rank(3, "job"), kUser);
  EXPECT_EQ(domain.name, "rank-3-job");
  EXPECT_EQ(domain.priority_class, shm::PriorityClass::kBestEffort);
  EXPECT_TRUE(domain.is_own);
  EXPECT_FALSE(domain.are_classes_mixed);
  EXPECT_TRUE(domain.SameAs(domain_of(rank(3, "job"), kUser)));
  EXPECT_FALSE(domain.SameAs(domain_of(rank(2, "job"), kUser)));
  EXPECT_FALSE(domain.SameAs(domain_of(rank(3, "job2"), kUser)));
  EXPECT_FALSE(domain.SameAs(domain_of(rank(3, "job"), kUser + 1))) << "what it says joins nobody else's";
  EXPECT_FALSE(domain.SameAs(PlaceWithGrant(rank(3, "job"), kUser)->domain));
  EXPECT_EQ(domain.Label(), "rank-3-job:1000");
  EXPECT_EQ(domain.CounterLabel(), "own:1000") << "jobs come and go without end, counters stay";
  EXPECT_FALSE(domain_of(Asking(shm::PriorityClass::kDefault), kUser).is_own);
  config_.share_contexts = true;
  EXPECT_EQ(domain_of(rank(3, "job"), kUser).name, "rank-3-job");
}

TEST_F(PlacementTest, WhoStandsApartIsAloneInItsDomain) {
  const auto hello = OfRank(shm::OwnDomain::kApart, 0, "");
  EXPECT_EQ(Place(hello, {kUser, false, nullptr, 5}, config_, NoDomains)->domain.name, "apart-5");
  EXPECT_EQ(Place(hello, {kUser, false, nullptr, 6}, config_, NoDomains)->domain.name, "apart-6");
}

TEST_F(PlacementTest, NonsenseAboutRanksIsRefused) {
  for (const auto& hello : {OfRank(shm::OwnDomain::kRank, 0, ""), OfRank(shm::OwnDomain::kRank, 0, "a/b"),
                            OfRank(shm::OwnDomain::kRank, 0, "a@b"), OfRank(static_cast<shm::OwnDomain>(3), 0, "a")}) {
    const auto placed = Place(hello, {kUser, false, nullptr, 5}, config_, NoDomains);
    ASSERT_FALSE(placed);
    EXPECT_EQ(placed.error().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tally::server
