#include "server/metrics/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "server/metrics/metrics_list.h"

namespace tally::server {
namespace {

TEST(MetricsList, NamesFollowPrometheusConventions) {
  std::set<std::string> names;
  for (const MetricRow& row : MetricsList()) {
    const std::string name = row.name;
    EXPECT_TRUE(names.insert(name).second) << name << " twice";
    EXPECT_TRUE(name.starts_with("tally_")) << name;
    EXPECT_EQ(name.ends_with("_total"), row.kind == MetricKind::kCounter) << name;
    const std::string unit = row.unit;
    if (unit == "bytes" || unit == "seconds") {
      EXPECT_THAT(name, ::testing::HasSubstr("_" + unit));
    }
    EXPECT_EQ(std::string(row.sentence).back(), '.') << name;
  }
}

Overview MakeOverview() {
  Overview overview;
  SessionRow session;
  session.record.identity.priority_class = static_cast<uint32_t>(shm::PriorityClass::kHighPriority);
  session.domain = {"high", 1000, shm::PriorityClass::kHighPriority};
  overview.sessions = {session, session, session};
  overview.sessions[1].record.is_stale = true;
  overview.sessions[1].record.identity.slo_latency_ns = 2'000'000;
  overview.sessions[1].record.identity.slo_percentile = 99.9;
  overview.sessions[1].record.figures.slo_observed_ns = 1'500'000;
  overview.sessions[1].record.figures.slo_caution = 8;
  overview.executors = {
      {7, session.domain, ExecutorState::kServing, "sim", 1, 2, {}, false, "tally", "as configured", {}}};
  overview.executors[0].time_slices.num_groups = 4;
  overview.executors[0].time_slices.longest_us = 1000000;
  overview.executors[0].time_slices.suspension = control::LinkSuspension::kRefused;
  overview.tenants[{"bert", 1000}].host_to_device_bytes = 12;
  overview.tenants[{"bert", 1000}].device_to_host_bytes = 13;
  overview.tenants[{"bert", 1000}].stops[0] = 5;
  overview.tenants[{"bert", 1000}].stops[2] = 3;
  overview.tenants[{"bert", 1000}].stop_ns = 250'000'000;
  overview.domains["high:1000"].failures = 3;
  overview.refused_sessions["UNAVAILABLE"] = 4;
  overview.refused_functions["cuMulticastCreate"] = 5;
  return overview;
}

// Every label that a sample has is announced in the table, and every metric of the table has a sample.
TEST(Families, AgreeWithTheTable) {
  DaemonFacts facts;
  facts.forced_switch = SwitchFigures{};
  const auto families = MakeFamilies(MakeOverview(), facts);
  ASSERT_EQ(families.size(), MetricsList().size());
  for (size_t i = 0; i < families.size(); ++i) {
    EXPECT_EQ(families[i].name, MetricsList()[i].name);
    EXPECT_FALSE(families[i].metric.empty()) << families[i].name;
    for (const auto& sample : families[i].metric) {
      std::string labels;
      for (const auto& label : sample.label) labels += (labels.empty() ? "" : ", ") + label.name;
      EXPECT_EQ(labels, MetricsList()[i].labels) << families[i].name;
    }
  }
}

TEST(Families, CarryTheFigures) {
  const auto families = MakeFamilies(MakeOverview(), {});
  auto family = [&](Metric metric) { return families[static_cast<size_t>(metric)]; };
  EXPECT_EQ(family(Metric::kTenantCopiedBytes).metric.at(0).counter.value, 12);
  EXPECT_EQ(family(Metric::kTenantCopiedBytes).metric.at(1).counter.value, 13);
  EXPECT_EQ(family(Metric::kSessions).metric.at(0).gauge.value, 3);
  EXPECT_EQ(family(Metric::kStaleSessions).metric.at(0).gauge.value, 1);
  ASSERT_EQ(family(Metric::kSloObjective).metric.size(), 1u) << "of the session that has one";
  EXPECT_EQ(family(Metric::kSloObjective).metric.at(0).gauge.value, 0.002);
  EXPECT_EQ(family(Metric::kSloObjective).metric.at(0).label.at(3).value, "99.9");
  EXPECT_EQ(family(Metric::kSloObserved).metric.at(0).gauge.value, 0.0015);
  EXPECT_EQ(family(Metric::kSloCaution).metric.at(0).gauge.value, 0.25);
  EXPECT_EQ(family(Metric::kExecutors).metric.at(0).gauge.value, 1);
  EXPECT_EQ(family(Metric::kExecutorFailures).metric.at(0).counter.value, 3);
  EXPECT_EQ(family(Metric::kExecutorSuspension).metric.at(0).label.at(2).value, "refused");
  EXPECT_EQ(family(Metric::kSessionsRefused).metric.at(0).counter.value, 4);
  EXPECT_EQ(family(Metric::kRefusedCalls).metric.at(0).counter.value, 5);
  EXPECT_EQ(family(Metric::kRefusedCalls).metric.at(0).label.at(0).value, "cuMulticastCreate");
}

// Prometheus counts in each bucket what is at most its bound: those of the smaller ones, too.
TEST(Families, HistogramsAreCumulativeAndInSeconds) {
  const auto families = MakeFamilies(MakeOverview(), {});
  const auto histogram = families[static_cast<size_t>(Metric::kTenantStopSeconds)].metric.at(0).histogram;
  ASSERT_EQ(histogram.bucket.size(), std::size(control::kStopBoundsNs) + 1);
  for (size_t i = 0; i < histogram.bucket.size(); ++i)
    EXPECT_EQ(histogram.bucket[i].cumulative_count, i < 2 ? 5u : 8u) << i;
  EXPECT_EQ(histogram.bucket[0].upper_bound, static_cast<double>(control::kStopBoundsNs[0]) * 1e-9);
  EXPECT_EQ(histogram.sample_count, 8u);
  EXPECT_EQ(histogram.sample_sum, 0.25);
}

}  // namespace
}  // namespace tally::server
