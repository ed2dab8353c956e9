#include "server/daemon/metrics/families.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "server/daemon/metrics/metrics_list.h"

namespace tally::server {
namespace {

TEST(MetricsList, NamesFollowPrometheusConventions) {
  std::set<std::string> names;
  for (const MetricRow& row : MetricsList()) {
    const std::string name = row.name;
    EXPECT_TRUE(names.insert(name).second) << name << " twice";
    EXPECT_TRUE(name.starts_with("tally_") || name.starts_with("process_")) << name;
    const std::string labels = row.labels;
    EXPECT_EQ(labels.find("quantile"), std::string::npos) << name << ": the label is that of summaries";
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
  overview.sessions[1].record.figures["slo_observed_ns"] = 1'500'000;
  overview.sessions[1].record.figures["slo_caution"] = 8;
  overview.executors = {
      {7, session.domain, ExecutorState::kServing, "sim", 1, 2, {}, false, "tally", "as configured", {}}};
  overview.executors[0].time_slices.num_groups = 4;
  overview.executors[0].time_slices.longest_us = 1000000;
  overview.executors[0].time_slices.descheduling = control::LinkDescheduling::kRefused;
  overview.gpus = {"GPU-1"};
  overview.tenants[{"bert", 1000}]["host_to_device_bytes"] = 12;
  overview.domains["high:1000"].failures = 3;
  overview.refused_sessions["UNAVAILABLE"] = 4;
  GrantRow grant;
  grant.grant.spec.tenant = "team-a";
  grant.grant.spec.label_namespace = "blue";
  grant.num_sessions = 6;
  overview.grants = {grant};
  overview.refused_by_grants[{"team-a", "PERMISSION_DENIED"}] = 7;
  overview.refused_functions["cuMulticastCreate"] = 5;
  return overview;
}

TEST(Families, ATenantWithAGrantIsNotOneThatTakesItsName) {
  Overview overview;
  overview.tenants[{"team-a", 0}]["requests"] = 1;
  overview.tenants[{"team-a", 0, true}]["requests"] = 2;
  std::map<std::string, double> by_uid;
  for (const auto& family : MakeFamilies(overview, {})) {
    if (family.name != "tally_tenant_requests_total") continue;
    for (const auto& sample : family.metric) by_uid[sample.label[1].value] = sample.counter.value;
  }
  EXPECT_EQ(by_uid, (std::map<std::string, double>{{"0", 1}, {"grant", 2}}));
}

// Those without a window would be most of the page.
TEST(Families, WhatIsCountedByNameBeginsWithTheFirst) {
  Overview overview;
  overview.tenants[{"plain", 1}]["requests"] = 1;
  overview.tenants[{"windowed", 1}].entries("window_barriers")[3] = 5;
  std::map<std::string, size_t> samples;
  for (const auto& family : MakeFamilies(overview, {})) {
    if (family.name != "tally_tenant_window_barriers_total") continue;
    for (const auto& sample : family.metric) ++samples[sample.label[0].value];
  }
  EXPECT_EQ(samples, (std::map<std::string, size_t>{{"windowed", control::kNumWindowBarriers}}));
}

// Every label that a sample has is announced in the table, and every metric of the table has a sample.
TEST(Families, AgreeWithTheTable) {
  DaemonFacts facts;
  facts.forced_switch = control::SwitchFigures{};
  Overview overview = MakeOverview();
  control::SessionFigures& windowed = overview.tenants[{"windowed", 7}];
  windowed.entries("window_classes")[1] = windowed.entries("window_barriers")[1] = 1;
  windowed.entries("window_batches")[1] = 1;
  const auto families = MakeFamilies(overview, facts);
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
  auto family = [&](Metric metric) { return families[IndexOf(metric)]; };
  auto of_figure = [&](control::Figure figure) { return families[IndexOf(figure).value()]; };
  EXPECT_EQ(of_figure("host_to_device_bytes").metric.at(0).counter.value, 12);
  EXPECT_EQ(family(Metric::kSessions).metric.at(0).gauge.value, 3);
  EXPECT_EQ(family(Metric::kStaleSessions).metric.at(0).gauge.value, 1);
  ASSERT_EQ(family(Metric::kSloObjective).metric.size(), 1u) << "of the session that has one";
  EXPECT_EQ(family(Metric::kSloObjective).metric.at(0).gauge.value, 0.002);
  EXPECT_EQ(family(Metric::kSloObjective).metric.at(0).label.at(3).value, "99.9");
  ASSERT_EQ(of_figure("slo_observed_ns").metric.size(), 1u);
  EXPECT_EQ(of_figure("slo_observed_ns").metric.at(0).gauge.value, 0.0015);
  EXPECT_EQ(of_figure("slo_observed_ns").metric.at(0).label.at(3).value, "99.9");
  ASSERT_EQ(of_figure("slo_caution").metric.size(), 1u);
  EXPECT_EQ(of_figure("slo_caution").metric.at(0).gauge.value, 0.25);
  EXPECT_EQ(family(Metric::kExecutors).metric.at(0).gauge.value, 1);
  EXPECT_EQ(family(Metric::kExecutorFailures).metric.at(0).counter.value, 3);
  EXPECT_EQ(family(Metric::kExecutorDescheduling).metric.at(0).label.at(2).value, "refused");
  EXPECT_EQ(family(Metric::kSessionsRefused).metric.at(0).counter.value, 4);
  EXPECT_EQ(family(Metric::kRefusedCalls).metric.at(0).counter.value, 5);
  EXPECT_EQ(family(Metric::kRefusedCalls).metric.at(0).label.at(0).value, "cuMulticastCreate");
}

// By name and labels, "NAME LABEL=VALUE..."; without those that all of a tenant have.
std::map<std::string, double> SamplesOfTenants(const Overview& overview) {
  std::map<std::string, double> samples;
  for (const auto& family : MakeFamilies(overview, {})) {
    if (!family.name.starts_with("tally_tenant_")) continue;
    for (const auto& sample : family.metric) {
      EXPECT_EQ(sample.label.at(0).value, "bert") << family.name;
      EXPECT_EQ(sample.label.at(1).value, "1000") << family.name;
      std::string key = family.name;
      for (size_t i = 2; i < sample.label.size(); ++i) key += " " + sample.label[i].name + "=" + sample.label[i].value;
      samples[key] = sample.counter.value + sample.gauge.value + sample.histogram.sample_sum;
    }
  }
  return samples;
}

struct Expected {
  const char* sample;
  control::Figure figure;
};

// Names and labels are written down here once more: users have them in their dashboards.
TEST(Families, EachFigureIsTheSampleOfItsName) {
  Overview overview;
  control::SessionFigures& figures = overview.tenants[{"bert", 1000}];
  std::iota(std::begin(figures.values), std::end(figures.values), 1000);
  overview.gpus = {"GPU-a", "GPU-b"};
  const auto samples = SamplesOfTenants(overview);
  const Expected kPieces[] = {
      {"tally_tenant_kernel_launches_total", "kernel_launches"},
      {"tally_tenant_graph_launches_total", "graph_launches"},
      {"tally_tenant_copied_bytes_total direction=host_to_device", "host_to_device_bytes"},
      {"tally_tenant_copied_bytes_total direction=device_to_host", "device_to_host_bytes"},
      {"tally_tenant_copied_bytes_total direction=device_to_device", "device_to_device_bytes"},
      {"tally_tenant_device_memory_bytes", "device_memory_bytes"},
      {"tally_tenant_pinned_memory_bytes", "pinned_memory_bytes"},
      {"tally_tenant_requests_total", "requests"},
      {"tally_tenant_refused_calls_total", "refused_calls"},
      {"tally_tenant_failed_calls_total", "failed_calls"},
      {"tally_tenant_held_launches_total", "held_launches"},
      {"tally_tenant_varied_launches_total form=slices", "sliced_launches"},
      {"tally_tenant_varied_launches_total form=workers", "worker_launches"},
      {"tally_tenant_varied_launches_total form=gated", "gated_launches"},
      {"tally_tenant_gated_transfers_total", "gated_transfers"},
      {"tally_tenant_yields_total", "yields"},
      {"tally_tenant_timed_yields_total", "timed_yields"},
      {"tally_tenant_resumed_launches_total", "resumed_launches"},
      {"tally_tenant_resumed_blocks_total", "resumed_blocks"},
      {"tally_tenant_window_classes_total class=C0", "window_classes"},
      {"tally_tenant_window_barriers_total reason=call", "window_barriers"},
      {"tally_tenant_window_held_total", "window_held"},
      {"tally_tenant_window_transfers_total", "window_transfers"},
      {"tally_tenant_window_issued_total how=graph", "window_in_graphs"},
      {"tally_tenant_window_issued_total how=in_order", "window_in_order"},
      {"tally_tenant_window_batches_total end=full", "window_batches"},
      {"tally_tenant_window_graphs_total", "window_graphs"},
      {"tally_tenant_window_shapes_total", "window_shapes"},
      {"tally_tenant_window_twins_total", "window_twins"},
      {"tally_tenant_window_twin_launches_total which=twin", "window_twin_launches"},
      {"tally_tenant_window_twin_launches_total which=own", "window_twins_slower"},
      {"tally_tenant_window_node_updates_total", "window_node_updates"},
      {"tally_tenant_window_work_total", "window_work"},
      {"tally_tenant_window_compared_total", "window_compared"},
      {"tally_tenant_window_chain_total hazards=all", "window_chain"},
      {"tally_tenant_window_chain_total hazards=read_after_write", "window_chain_read_after_write"},
      {"tally_tenant_graph_cuts_total", "graph_cuts"},
      {"tally_tenant_graphs_in_partitions_total", "graphs_in_partitions"},
      {"tally_tenant_graph_partitions_total", "graph_partitions"},
      {"tally_tenant_graphs_spread_total", "graphs_spread"},
      {"tally_tenant_graph_moved_bytes_total", "graph_moved_bytes"},
      {"tally_tenant_expected_work_total", "hints_announced"},
      {"tally_tenant_declared_work_total", "hints_declared"},
      {"tally_tenant_arrival_hints_total outcome=hit", "hints_hit"},
      {"tally_tenant_arrival_hints_total outcome=false", "hints_false"},
      {"tally_tenant_arrival_hints_total outcome=late", "hints_late"},
      {"tally_tenant_arrival_hints_total outcome=refused", "hints_refused"},
      {"tally_tenant_gaps_total outcome=hit", "gaps_hit"},
      {"tally_tenant_gaps_total outcome=late", "gaps_late"},
      {"tally_tenant_gaps_total outcome=rule", "gaps_by_rule"},
      {"tally_tenant_gaps_total outcome=guard", "gaps_by_guard"},
      {"tally_tenant_guarded_requests_total gaps=held", "requests_gaps_held"},
      {"tally_tenant_guarded_requests_total gaps=open", "requests_gaps_open"},
      {"tally_tenant_prefer_holding_sessions", "prefers_holding"},
      {"tally_tenant_long_block_sessions", "has_long_blocks"},
      {"tally_tenant_slo_requests_total", "slo_requests"}};
  for (const auto& [sample, figure] : kPieces) {
    ASSERT_TRUE(samples.contains(sample)) << sample;
    EXPECT_EQ(samples.at(sample), static_cast<double>(figures[figure])) << sample;
  }
  const Expected kTimes[] = {{"tally_tenant_gpu_seconds_total", "gpu_time_ns"},
                             {"tally_tenant_held_seconds_total", "held_ns"},
                             {"tally_tenant_yield_seconds_total phase=seen", "yield_seen_ns"},
                             {"tally_tenant_yield_seconds_total phase=written", "yield_written_ns"},
                             {"tally_tenant_yield_seconds_total phase=left", "yield_left_ns"},
                             {"tally_tenant_stop_seconds", "stop_ns"},
                             {"tally_tenant_gap_hold_seconds_total", "gap_hold_ns"},
                             {"tally_tenant_guarded_request_seconds_total gaps=held", "requests_gaps_held_ns"},
                             {"tally_tenant_guarded_request_seconds_total gaps=open", "requests_gaps_open_ns"},
                             {"tally_tenant_window_seconds_total how=in_order", "window_in_order_ns"},
                             {"tally_tenant_window_seconds_total how=graph", "window_in_graphs_ns"},
                             {"tally_tenant_covered_seconds_total by=slices reason=", "preemptibility_ns"}};
  for (const auto& [sample, figure] : kTimes) {
    ASSERT_TRUE(samples.contains(sample)) << sample;
    EXPECT_NEAR(samples.at(sample), static_cast<double>(figures[figure]) * 1e-9, 1e-15) << sample;
  }
  const std::string last = "tally_tenant_covered_seconds_total by=time_slice reason=graph";
  EXPECT_NEAR(samples.at(last), static_cast<double>(figures.entries("preemptibility_ns").back()) * 1e-9, 1e-15);
  const auto barriers = figures.entries("window_barriers");
  for (size_t i = 0; i < barriers.size(); ++i) {
    const std::string sample = std::string("tally_tenant_window_barriers_total reason=") + control::kWindowBarriers[i];
    EXPECT_EQ(samples.at(sample), static_cast<double>(barriers[i])) << sample;
  }
  for (size_t i = 0; i < 4; ++i) {
    const std::string name = fmt::format("tally_tenant_gpu_busy_seconds_total gpu=GPU-{} class={}", i < 2 ? "a" : "b",
                                         i % 2 == 0 ? "best-effort" : "high");
    ASSERT_TRUE(samples.contains(name)) << name;
    EXPECT_NEAR(samples.at(name), static_cast<double>(figures.entries("busy_ns")[i]) * 1e-9, 1e-15) << name;
  }
  // No row is left out: each has a sample, and those of one family differ in their labels.
  size_t num_expected = control::kNumPreemptibilities - 1 + 3;
  for (const control::FigureRow& row : control::kSessionFigures) {
    if (*row.family.name == '\0' || row.kind == control::FigureKind::kOfObjective) continue;
    num_expected += std::max<size_t>(control::EntryNames(row.entries).size(), 1);
  }
  EXPECT_EQ(samples.size(), num_expected);
}

// A series that comes and goes breaks rate(): one of every GPU and class from the start, also of those who rest.
TEST(Families, BusyTimeOfATenantThatRestsIsZero) {
  Overview overview = MakeOverview();
  overview.gpus = {"GPU-a", "GPU-b", "GPU-c"};
  const auto families = MakeFamilies(overview, {});
  const auto& samples = families[IndexOf(control::Figure("busy_ns")).value()].metric;
  ASSERT_EQ(samples.size(), 6u);
  for (const auto& sample : samples) EXPECT_EQ(sample.counter.value, 0);
}

TEST(Families, StopsAreAHistogram) {
  Overview overview;
  auto& figures = overview.tenants[{"bert", 1000}];
  figures.entries("stops")[0] = 3;
  figures.entries("stops")[2] = 4;
  figures.entries("stops").back() = 5;
  figures["stop_ns"] = 6'000'000'000;
  const auto families = MakeFamilies(overview, {});
  const auto& histogram = families[IndexOf(control::Figure("stops")).value()].metric.at(0).histogram;
  EXPECT_EQ(histogram.bucket.size(), control::kStopBuckets);
  EXPECT_EQ(histogram.bucket.at(0).cumulative_count, 3u);
  EXPECT_EQ(histogram.bucket.at(0).upper_bound, 10e-6);
  EXPECT_EQ(histogram.bucket.at(2).cumulative_count, 7u);
  EXPECT_EQ(histogram.bucket.back().cumulative_count, 12u);
  EXPECT_EQ(histogram.sample_count, 12u);
  EXPECT_EQ(histogram.sample_sum, 6);
}

TEST(Families, BeforeItsFirstWindowEndsNothingWasObserved) {
  Overview overview = MakeOverview();
  overview.sessions[1].record.figures["slo_observed_ns"] = 0;
  const auto families = MakeFamilies(overview, {});
  EXPECT_TRUE(families[IndexOf(control::Figure("slo_observed_ns")).value()].metric.empty());
  EXPECT_EQ(families[IndexOf(control::Figure("slo_caution")).value()].metric.size(), 1u);
}

}  // namespace
}  // namespace tally::server
