#include "server/ctl/window_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "proto/control/session_fields.h"

namespace tally::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void Count(control::SessionFigures& figures, control::Figure figure, std::string_view entry, uint64_t count) {
  const auto names = control::EntryNames(figure.row().entries);
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == entry) figures.entries(figure)[i] = count;
}

control::v1::ListSessionsResponse Sessions() {
  control::v1::ListSessionsResponse response;
  auto* plain = response.add_sessions();
  plain->set_tenant("plain");
  plain->set_window("off");
  response.add_sessions()->set_tenant("ancient");  // of a tallyd that has no windows
  auto* session = response.add_sessions();
  session->set_id(7);
  session->set_tenant("warp");
  session->set_window("on");
  control::SessionFigures figures{};
  Count(figures, "window_classes", "C0", 600);
  Count(figures, "window_classes", "C2", 150);
  Count(figures, "window_classes", "none", 50);
  Count(figures, "window_barriers", "no-ptx", 120);
  Count(figures, "window_barriers", "volatile", 70);
  Count(figures, "window_barriers", "trap", 4);
  Count(figures, "window_barriers", "object", 3);
  Count(figures, "window_barriers", "other", 3);
  Count(figures, "window_batches", "step", 9);
  figures["window_held"] = 800;
  figures["window_in_graphs"] = 640;
  figures["window_twin_launches"] = 9;
  figures["window_twins_slower"] = 3;
  figures["window_work"] = 1000;
  figures["window_compared"] = 35;
  figures["window_chain"] = 400;
  figures["window_chain_read_after_write"] = 250;
  figures["window_in_order_ns"] = 9000;
  figures["window_in_graphs_ns"] = 5000;
  control::SetFigures(figures, session);
  return response;
}

TEST(WindowTable, ShowsSharesOfAllLaunchesAndTheMostFrequentReasons) {
  const std::string text = WindowTable(Sessions());
  EXPECT_THAT(text, HasSubstr(" 1000 "));
  EXPECT_THAT(text, HasSubstr("80.0 %")) << "held";
  EXPECT_THAT(text, HasSubstr("64.0 %")) << "in graphs";
  EXPECT_THAT(text, HasSubstr("75.0 %")) << "of launches of graphs with twins";
  EXPECT_THAT(text, HasSubstr(" 3.5 % ")) << "of the launches that follow from this, compared";
  EXPECT_THAT(text, HasSubstr(" 2.50 ")) << "parallelism";
  EXPECT_THAT(text, HasSubstr(" 4.00 ")) << "read after write alone";
  EXPECT_THAT(text, HasSubstr(" 1.80 ")) << "gain";
  EXPECT_THAT(text, HasSubstr("C0 60.0 %, C2 15.0 %, none 5.0 %"));
  EXPECT_THAT(text, HasSubstr("no-ptx 12.0 %, volatile 7.0 %, trap 0.4 %, object 0.3 %, ..."));
  EXPECT_THAT(text, Not(HasSubstr("plain")));
  EXPECT_THAT(text, Not(HasSubstr("ancient")));
}

TEST(WindowTable, NothingYetIsNoNumber) {
  control::v1::ListSessionsResponse response;
  response.add_sessions()->set_window("shadow");
  EXPECT_THAT(WindowTable(response),
              HasSubstr("shadow         0  -     -          -      -         -         -         -     -        -"));
  EXPECT_EQ(WindowTable({}), "");
}

TEST(WindowTable, JsonHasEveryFigureOfWindows) {
  const nlohmann::json rows = WindowJson(Sessions());
  ASSERT_EQ(rows.size(), 1u);
  const nlohmann::json& row = rows.at(0);
  EXPECT_EQ(row.at("id"), 7u);
  EXPECT_EQ(row.at("tenant"), "warp");
  EXPECT_EQ(row.at("mode"), "on");
  EXPECT_EQ(row.at("held"), 800u);
  EXPECT_EQ(row.at("in_order"), 0u) << "shown, though nothing was counted";
  EXPECT_EQ(row.at("in_order_ns"), 9000u);
  EXPECT_EQ(row.at("classes"), nlohmann::json({{"C0", 600}, {"C2", 150}, {"none", 50}}));
  EXPECT_EQ(row.at("batches"), nlohmann::json({{"step", 9}}));
  EXPECT_EQ(row.at("barriers").at("no-ptx"), 120u);
}

TEST(ShapeTable, HasALineForEachShape) {
  control::v1::ListWindowShapesResponse response;
  EXPECT_EQ(ShapeTable(response), "");
  auto* shape = response.add_shapes();
  shape->set_session_id(7);
  shape->set_launches(64);
  shape->set_levels(16);
  shape->set_tracks(5);
  shape->set_uses(900);
  shape->set_in_order_ns(200'000);
  shape->set_graph_ns(80'000);
  shape->set_way("graph");
  response.add_shapes()->set_way("in order");  // not measured yet
  const std::string text = ShapeTable(response);
  EXPECT_THAT(text, HasSubstr("      7        64      16       5   900  200.0        80.0      2.50  graph"));
  EXPECT_THAT(text, HasSubstr("-            -         -     in order"));
  EXPECT_EQ(ShapeJson(response).at(0).at("in_order_ns"), 200'000u);
}

}  // namespace
}  // namespace tally::cli
