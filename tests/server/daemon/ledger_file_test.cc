#include "server/daemon/ledger_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

class LedgerFileTest : public testing::Test {
 protected:
  void Write(const std::string& text) { std::ofstream(path_) << text; }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/ledger";
};

TEST_F(LedgerFileTest, WhatWasSavedIsThereAgain) {
  TenantLedger ledger;
  control::SessionFigures figures{};
  for (size_t i = 0; i < control::kNumFigureValues; ++i) figures.values[i] = i == 3 ? UINT64_MAX : i;
  ledger.Restore({"bert", 1000}, figures);
  ledger.Restore({"any \xff\" bytes", 0}, {});
  SaveLedger(path_, ledger, {"GPU-a", "GPU-b"});
  SaveLedger(path_, ledger, {"GPU-a", "GPU-b"});
  const KeptLedger kept = LoadLedger(path_);
  EXPECT_THAT(kept.gpus, testing::ElementsAre("GPU-a", "GPU-b"));
  ASSERT_EQ(kept.ledger.ended().size(), 2u);
  const auto& again = kept.ledger.ended().at({"bert", 1000});
  EXPECT_TRUE(std::equal(std::begin(figures.values), std::end(figures.values), std::begin(again.values)));
}

// A program that calls itself like a grant's tenant is another tenant, also of the next tallyd.
TEST_F(LedgerFileTest, ATenantWithAGrantIsNoProgramOfItsName) {
  TenantLedger ledger;
  control::SessionFigures of_grant{}, of_program{};
  of_grant["requests"] = 5;
  of_program["requests"] = 7;
  ledger.Restore({"bert", 0, true}, of_grant);
  ledger.Restore({"bert", 0, false}, of_program);
  SaveLedger(path_, ledger, {});
  const auto kept = LoadLedger(path_).ledger.ended();
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept.at({"bert", 0, true})["requests"], 5u);
  EXPECT_EQ(kept.at({"bert", 0, false})["requests"], 7u);
}

TEST_F(LedgerFileTest, WhatMakesNoSenseIsNothing) {
  EXPECT_TRUE(LoadLedger(path_).ledger.ended().empty()) << "not there";
  const std::string hash = std::to_string(control::kSessionFiguresHash);
  const std::string tenant = R"({"name":"a","uid":1,"has_grant":false,"values":[[0,5]]})";
  Write(R"({"figures":)" + hash + R"(,"gpus":[],"tenants":[)" + tenant + "]}");
  EXPECT_EQ(LoadLedger(path_).ledger.ended().size(), 1u);
  Write(R"({"figures":7,"gpus":[],"tenants":[)" + tenant + "]}");
  EXPECT_TRUE(LoadLedger(path_).ledger.ended().empty()) << "of another table";
  for (const char* text : {"", "[", "[]", "7", R"({"figures":"x"})"}) {
    Write(text);
    EXPECT_TRUE(LoadLedger(path_).ledger.ended().empty()) << text;
  }
  for (const char* values : {"[[0]]", "[[-1,5]]", R"([["a",5]])", "[7]", "{}"}) {
    Write(R"({"figures":)" + hash + R"(,"gpus":[],"tenants":[{"name":"a","uid":1,"has_grant":false,"values":)" +
          values + "}]}");
    const KeptLedger kept = LoadLedger(path_);
    for (const auto& [key, figures] : kept.ledger.ended()) {
      for (const uint64_t value : figures.values) EXPECT_EQ(value, 0u) << values;
    }
  }
}

}  // namespace
}  // namespace tally::server
