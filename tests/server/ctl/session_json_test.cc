#include "server/ctl/session_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "proto/control/session_fields.h"

namespace tally::cli {
namespace {

using Json = nlohmann::json;

TEST(SessionJson, HasEveryFigureUnderItsName) {
  control::SessionFigures figures{};
  std::iota(std::begin(figures.values), std::end(figures.values), 1000);
  control::v1::Session session;
  control::SetFigures(figures, &session);
  const Json row = ToJson(session);
  for (const control::Figure figure : control::kAllFigures) {
    const std::string name = figure.row().name;
    if (figure.row().entries == control::FigureEntries::kByPreemptibility) continue;
    const auto entries = figures.entries(figure);
    const uint64_t value = std::accumulate(entries.begin(), entries.end(), uint64_t{0});
    ASSERT_TRUE(row.contains(name)) << name;
    if (figure.row().one == 1) {
      EXPECT_TRUE(row.at(name).is_number_unsigned()) << name;
      EXPECT_EQ(row.at(name), value) << name;
    } else {
      EXPECT_EQ(row.at(name), static_cast<double>(value) / static_cast<double>(figure.row().one)) << name;
    }
  }
}

// Scripts read these.
TEST(SessionJson, KeepsItsKeys) {
  const Json row = ToJson(control::v1::Session());
  for (const char* key : {"id",
                          "tenant",
                          "pid",
                          "uid",
                          "class",
                          "domain",
                          "executor_pid",
                          "driver",
                          "age_ns",
                          "kernel_launches",
                          "graph_launches",
                          "host_to_device_bytes",
                          "device_to_host_bytes",
                          "device_to_device_bytes",
                          "device_memory_bytes",
                          "pinned_memory_bytes",
                          "requests",
                          "refused_calls",
                          "failed_calls",
                          "weight",
                          "level",
                          "turnaround_ns",
                          "window",
                          "gpu_time_ns",
                          "held_launches",
                          "held_ns",
                          "sliced_launches",
                          "worker_launches",
                          "gated_launches",
                          "yields",
                          "timed_yields",
                          "yield_seen_ns",
                          "yield_written_ns",
                          "yield_left_ns",
                          "coverage",
                          "stops",
                          "stop_ns",
                          "resumed_launches",
                          "resumed_blocks",
                          "slo",
                          "slo_requests",
                          "slo_observed_ns",
                          "slo_caution",
                          "is_stale"}) {
    EXPECT_TRUE(row.contains(key)) << key;
  }
  EXPECT_EQ(row.at("yields"), 0u) << "shown, though nothing was counted";
}

TEST(SessionJson, ShowsWhatOnlyANewerDaemonCounts) {
  control::v1::Session session;
  session.set_id(7);
  session.set_tenant("bert");
  session.set_is_stale(true);
  session.add_coverage()->set_by("gated");
  control::SetFigure("frobnications", 77, 1, &session);
  const Json row = ToJson(session);
  EXPECT_EQ(row.at("frobnications"), 77u);
  EXPECT_EQ(row.at("id"), 7u);
  EXPECT_EQ(row.at("tenant"), "bert");
  EXPECT_EQ(row.at("is_stale"), true);
  EXPECT_EQ(row.at("coverage").at(0).at("by"), "gated");
}

}  // namespace
}  // namespace tally::cli
