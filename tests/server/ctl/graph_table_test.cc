#include "server/ctl/graph_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tally::cli {
namespace {

using ::testing::HasSubstr;

control::v1::ListGraphsResponse Graphs() {
  control::v1::ListGraphsResponse response;
  auto* cut = response.add_graphs();
  cut->set_session_id(7);
  cut->set_number(1);
  cut->set_nodes(1284);
  cut->set_partitions(61);
  cut->set_streams(4);
  cut->set_gpus(1);
  cut->set_launches(912);
  cut->set_launches_in_partitions(640);
  cut->set_whole_ns(4'120'000);
  cut->set_in_partitions_ns(4'300'500);
  auto* spread = response.add_graphs();
  spread->set_session_id(7);
  spread->set_number(2);
  spread->set_launches(100);
  spread->set_launches_spread(95);
  spread->set_spread_ns(1'500'000);
  spread->set_moved_bytes(64'500'000);
  auto* whole = response.add_graphs();
  whole->set_session_id(7);
  whole->set_number(12);
  whole->set_nodes(12);
  whole->set_launches(3);
  whole->set_why_whole("short");
  return response;
}

TEST(GraphTable, SaysHowEachIsLaunchedAndWhy) {
  const std::string text = GraphTable(Graphs());
  EXPECT_THAT(text, HasSubstr("7.1   1284  61          4           1       912  640            4.120     4.301 "));
  EXPECT_THAT(text, HasSubstr("partitions  -"));
  EXPECT_THAT(text, HasSubstr("95      1.500      64.500    spread      -"));
  EXPECT_THAT(text, HasSubstr("7.12     12  -           -        "));
  EXPECT_THAT(text, HasSubstr("whole       short"));
  EXPECT_EQ(GraphTable({}), "");
}

// One that was never launched has no way yet, and no reason either.
TEST(GraphTable, OneThatWasNeverCutIsNotSaidToBe) {
  control::v1::ListGraphsResponse response;
  response.add_graphs()->set_nodes(5);
  EXPECT_THAT(GraphTable(response), HasSubstr("whole"));
}

TEST(GraphTable, JsonHasNumbersAsTheyAre) {
  const nlohmann::json rows = GraphJson(Graphs());
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["id"], "7.1");
  EXPECT_EQ(rows[0]["in_partitions_ns"], 4'300'500);
  EXPECT_EQ(rows[1]["launches_spread"], 95);
  EXPECT_EQ(rows[1]["moved_bytes"], 64'500'000);
  EXPECT_EQ(rows[2]["why_whole"], "short");
  EXPECT_EQ(GraphJson({}), nlohmann::json::array());
}

TEST(GraphTable, AGraphIsNamedByItsSessionAndNumber) {
  const auto name = ParseGraphName("7.12");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->session_id, 7u);
  EXPECT_EQ(name->number, 12u);
  for (const char* text :
       {"", "7", "7.", ".1", "7.x", "x.1", "7.1 ", "7.1.2", "-7.1", "7.-1", "7.4294967296", "18446744073709551616.1"}) {
    EXPECT_FALSE(ParseGraphName(text)) << text;
  }
}

}  // namespace
}  // namespace tally::cli
