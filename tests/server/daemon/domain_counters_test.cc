#include "server/daemon/domain_counters.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tally::server {
namespace {

Domain Named(const std::string& name, uint32_t uid) { return {name, uid, shm::PriorityClass::kBestEffort}; }

// A million series asked for.
TEST(DomainBook, WhoeverNamesOneDomainAfterTheOtherGetsSoManySeries) {
  DomainBook book;
  for (int i = 0; i < 20'000; ++i) ++book.Of(Named(fmt::format("d{}", i), 1000)).starts;
  EXPECT_EQ(book.counters().size(), DomainBook::kMostPerOwner + 1);
  EXPECT_EQ(book.counters().at("(others):1000").starts, 20'000 - DomainBook::kMostPerOwner);
  EXPECT_EQ(book.counters().at("d0:1000").starts, 1u);
  // What is counted by name goes on, and another owner has names of his own.
  ++book.Of(Named("d0", 1000)).starts;
  ++book.Of(Named("d70", 1001)).starts;
  EXPECT_EQ(book.counters().at("d0:1000").starts, 2u);
  EXPECT_EQ(book.counters().at("d70:1001").starts, 1u);
  Domain of_grant = Named("best-effort", control::kSharedDomain);
  of_grant.grant_owner = "team-a";
  ++book.Of(of_grant).faults;
  EXPECT_EQ(book.counters().at("best-effort@team-a").faults, 1u);
}

}  // namespace
}  // namespace tally::server
