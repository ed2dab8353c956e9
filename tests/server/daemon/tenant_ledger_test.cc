#include "server/daemon/tenant_ledger.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

namespace tally::server {
namespace {

control::SessionIdentity Identity(const std::string& tenant, uint32_t uid) {
  control::SessionIdentity identity{};
  std::strncpy(identity.tenant_name, tenant.c_str(), sizeof(identity.tenant_name) - 1);
  identity.uid = uid;
  return identity;
}

TEST(TenantLedger, ATenantWithAGrantIsNotWhoTakesItsName) {
  control::SessionIdentity granted = Identity("bert", 1000);
  granted.grant_id = 3;
  EXPECT_NE(TenantKeyOf(granted), TenantKeyOf(Identity("bert", 1000)));
  control::SessionIdentity other_user = granted;
  other_user.uid = 1001;
  EXPECT_EQ(TenantKeyOf(granted), TenantKeyOf(other_user)) << "whoever its programs are";
}

TEST(TenantLedger, NamesOfClientsDoNotPushOutATenantWithAGrant) {
  TenantLedger ledger;
  const control::SessionFigures figures{};
  for (size_t i = 0; i < TenantLedger::kMaxTenants + 10; ++i) {
    ledger.AddEnded(Identity(fmt::format("name-{}", i), 1000), figures);
  }
  control::SessionIdentity granted = Identity("team", 0);
  granted.grant_id = 3;
  ledger.AddEnded(granted, figures);
  EXPECT_TRUE(ledger.ended().contains({"team", 0, true}));
  EXPECT_EQ(ledger.ended().size(), TenantLedger::kMaxTenants + 2) << "with (others)";
}

TEST(TenantLedger, CountersAddUpAndWhatWasHeldIsFree) {
  TenantLedger ledger;
  control::SessionFigures figures{};
  for (const control::Figure figure : control::kAllFigures) {
    for (size_t i = 0; i < figure.num_entries(); ++i) figures.entries(figure)[i] = 1000 * (figure.index() + 1) + i;
  }
  ledger.AddEnded(Identity("bert", 1000), figures);
  ledger.AddEnded(Identity("bert", 1000), figures);
  ledger.AddEnded(Identity("bert", 1001), figures);
  ASSERT_EQ(ledger.ended().size(), 2u);
  const auto& bert = ledger.ended().at({"bert", 1000});
  for (const control::Figure figure : control::kAllFigures) {
    const uint64_t times = figure.row().kind == control::FigureKind::kCounter ? 2 : 0;
    for (size_t i = 0; i < figure.num_entries(); ++i) {
      EXPECT_EQ(bert.entries(figure)[i], times * (1000 * (figure.index() + 1) + i)) << figure.row().name << " " << i;
    }
  }
  EXPECT_EQ(bert["device_memory_bytes"], 0u);
}

TEST(TenantLedger, InventedNamesDoNotGrowIt) {
  TenantLedger ledger;
  control::SessionFigures figures{};
  figures["kernel_launches"] = 1;
  for (size_t i = 0; i < TenantLedger::kMaxTenants + 500; ++i) {
    ledger.AddEnded(Identity(fmt::format("name{}", i), 1000), figures);
  }
  EXPECT_EQ(ledger.ended().size(), TenantLedger::kMaxTenants + 1);
  EXPECT_EQ(ledger.ended().at({"(others)", UINT32_MAX})["kernel_launches"], 500u);
}

}  // namespace
}  // namespace tally::server
