#include "server/ctl/top/model.h"

#include <gtest/gtest.h>

#include "tests/server/ctl/top/samples.h"

namespace tally::cli {
namespace {

TEST(TopModel, HasNoRatesFromOneSample) {
  TopSample now = SampleAt(10);
  AddSession(7, "train", false, &now)->set_kernel_launches(500);
  const TopView view = TopViewOf(nullptr, now, false);
  ASSERT_EQ(view.rows.size(), 1u);
  EXPECT_FALSE(view.rows[0].launches_per_s || view.rows[0].held_per_s || view.rows[0].busy_share);
  EXPECT_FALSE(view.totals.launches_per_s);
}

TEST(TopModel, RatesAreOfTheTimeBetweenTheSamples) {
  TopSample before = SampleAt(10), now = SampleAt(14);
  auto* session = AddSession(7, "train", false, &before);
  session->set_kernel_launches(1000);
  session->set_graph_launches(100);
  session->set_held_launches(10);
  SetBusy(5 * kSecondNs, session);
  session = AddSession(7, "train", false, &now);
  session->set_kernel_launches(1300);
  session->set_graph_launches(200);
  session->set_held_launches(12);
  SetBusy(6 * kSecondNs, session);
  const TopRow row = TopViewOf(&before, now, false).rows.at(0);
  EXPECT_DOUBLE_EQ(row.launches_per_s.value(), 100);
  EXPECT_DOUBLE_EQ(row.held_per_s.value(), 0.5);
  EXPECT_DOUBLE_EQ(row.busy_share.value(), 0.25);
}

TEST(TopModel, ASessionThatOpenedSinceThenHasRatesSinceItOpened) {
  TopSample before = SampleAt(10), now = SampleAt(14);
  auto* session = AddSession(8, "new", true, &now);
  session->set_age_ns(2 * kSecondNs);
  session->set_kernel_launches(300);
  EXPECT_DOUBLE_EQ(TopViewOf(&before, now, false).rows.at(0).launches_per_s.value(), 150);
}

TEST(TopModel, WhatWentBackOrIsStaleHasNoRate) {
  TopSample before = SampleAt(10), now = SampleAt(12);
  AddSession(7, "back", false, &before)->set_kernel_launches(1000);
  AddSession(7, "back", false, &now)->set_kernel_launches(10);
  AddSession(8, "stale", false, &before)->set_kernel_launches(10);
  auto* stale = AddSession(8, "stale", false, &now);
  stale->set_kernel_launches(20);
  stale->set_is_stale(true);
  AddSession(9, "was stale", false, &before)->set_is_stale(true);
  AddSession(9, "was stale", false, &now)->set_kernel_launches(20);
  for (const TopRow& row : TopViewOf(&before, now, false).rows) EXPECT_FALSE(row.launches_per_s) << row.tenant;
  // Two samples of one moment.
  EXPECT_FALSE(TopViewOf(&now, now, false).rows.at(0).launches_per_s);
}

TEST(TopModel, ATimeThatNobodyCountsIsNotKnown) {
  TopSample before = SampleAt(10), now = SampleAt(11);
  for (auto* sample : {&before, &now}) AddSession(7, "uncounted", false, sample)->set_gpu_time_ns(sample->at_ns);
  EXPECT_FALSE(TopViewOf(&before, now, false).rows.at(0).busy_share) << "an estimate of something else";
}

TEST(TopModel, AClassShowsItsOwnRank) {
  TopSample now = SampleAt(1);
  AddSession(1, "high", true, &now)->set_level(3);
  AddSession(2, "low", false, &now)->set_weight(250);
  const TopView view = TopViewOf(nullptr, now, false);
  EXPECT_EQ(view.rows.at(0).rank, 3u);
  EXPECT_EQ(view.rows.at(1).rank, 250u);
  EXPECT_EQ(view.totals.num_high, 1u);
  EXPECT_EQ(view.totals.num_best_effort, 1u);
}

TEST(TopModel, TenantsAreSumsOverTheirSessionsInAClass) {
  TopSample before = SampleAt(10), now = SampleAt(11);
  for (const uint64_t id : {1, 2, 3, 4}) {
    AddSession(id, "train", id == 3, &before);
    auto* session = AddSession(id, "train", id == 3, &now);
    session->set_uid(id == 4 ? 1000 : 0);
    session->set_kernel_launches(10 * id);
    session->set_device_memory_bytes(100 * id);
  }
  now.sessions.mutable_sessions(1)->set_weight(50);
  const TopView view = TopViewOf(&before, now, true);
  ASSERT_EQ(view.rows.size(), 3u) << "class and user tell tenants apart";
  EXPECT_EQ(view.rows[0].session_ids, (std::vector<uint64_t>{1, 2}));
  EXPECT_DOUBLE_EQ(view.rows[0].launches_per_s.value(), 30);
  EXPECT_EQ(view.rows[0].memory_bytes, 300u);
  EXPECT_FALSE(view.rows[0].rank) << "they differ";
  EXPECT_FALSE(view.rows[0].busy_share);
  EXPECT_EQ(view.rows[1].session_ids, (std::vector<uint64_t>{3}));
  EXPECT_EQ(view.totals.num_best_effort, 3u) << "sessions, not tenants";
  EXPECT_DOUBLE_EQ(view.totals.launches_per_s.value(), 100);
}

TEST(TopModel, OfATenantTheObjectiveThatIsFurthestFromBeingMetIsShown) {
  TopSample now = SampleAt(1);
  const struct {
    const char* slo;
    uint64_t observed_ns;
  } kServices[] = {{"p99=2ms", 1'000'000}, {"p99=1ms", 1'500'000}, {"", 0}, {"p99=100ms", 60'000'000}};
  uint64_t id = 0;
  for (const auto& service : kServices) {
    auto* session = AddSession(++id, "serve", true, &now);
    session->set_slo(service.slo);
    session->set_slo_observed_ns(service.observed_ns);
  }
  const TopView view = TopViewOf(nullptr, now, true);
  ASSERT_EQ(view.rows.size(), 1u);
  EXPECT_EQ(view.rows[0].objective, "p99=1ms");
  EXPECT_TRUE(view.rows[0].is_objective_missed);
  EXPECT_FALSE(TopViewOf(nullptr, now, false).rows.at(0).is_objective_missed);
}

TEST(TopModel, GpusAreThoseOfNvmlOrAsManyAsExecutorsHave) {
  TopSample now = SampleAt(1, "cuda 13000");
  now.executors.add_executors()->set_num_devices(2);
  now.executors.add_executors()->set_num_devices(1);
  EXPECT_EQ(TopViewOf(nullptr, now, false).gpus.size(), 2u);
  now.gpus.resize(4);
  now.gpus[3].name = "NVIDIA H100";
  EXPECT_EQ(TopViewOf(nullptr, now, false).gpus.at(3).name, "NVIDIA H100");
  now.version.set_driver("sim");  // whatever GPUs there are, this tallyd does not use them
  EXPECT_EQ(TopViewOf(nullptr, now, false).gpus.at(1).name, "software GPU");
}

TEST(ObjectiveNs, ReadsWhatTallydWrites) {
  EXPECT_EQ(ObjectiveNs("p99=2ms"), 2'000'000u);
  EXPECT_EQ(ObjectiveNs("p99.9=1.5us"), 1500u);
  EXPECT_EQ(ObjectiveNs("p90=100s"), 100 * kSecondNs);
  for (const char* none : {"", "p99", "p99=", "p99=x", "p99=3", "p99=3 parsecs"})
    EXPECT_EQ(ObjectiveNs(none), 0u) << none;
}

}  // namespace
}  // namespace tally::cli
