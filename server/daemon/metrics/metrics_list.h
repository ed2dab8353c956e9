// Every metric that tallyd exports: one table, in two parts. The families of sessions' figures are those of
// proto/control/session_figures.h; those of tallyd and its executors are here. docs/metrics.md is checked against it by
// a test.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "proto/control/session_figures.h"

namespace tally::server {

enum class MetricKind { kCounter, kGauge, kHistogram };

// Of tallyd and its executors: what families.cc fills by hand.
enum class Metric : size_t {
  kSloObjective,
  kTuning,
  kRefusedCalls,
  kSessions,
  kSessionsRefused,
  kGrant,
  kGrantSessions,
  kGrantSessionsRefused,
  kStaleSessions,
  kExecutors,
  kExecutorPolicy,
  kExecutorTimeSlice,
  kExecutorTimeSlicesRefused,
  kExecutorDescheduling,
  kExecutorDeschedulings,
  kExecutorStandstills,
  kExecutorRefreshes,
  kForcedSwitch,
  kTimeSlicesAct,
  kExecutorStarts,
  kExecutorFaults,
  kExecutorFailures,
  kUptimeSeconds,
  kBuild,
  kProcessCpuSeconds,  // of tallyd, under the names that Prometheus has for every process
  kProcessStartTime,
  kProcessVirtualMemory,
  kProcessResidentMemory,
  kProcessOpenFds,
  kProcessMaxFds,
  kCount,
};

struct MetricRow {
  const char* name;
  MetricKind kind;
  const char* unit;    // "launches", "bytes", ...
  const char* labels;  // names, separated by ", "; "" for none
  const char* sentence;
};

// The families of figures in the order in which the rows name them first, then those of Metric in its order.
std::span<const MetricRow> MetricsList();
// Indices into it. Of a figure nullopt: it is in no family.
size_t IndexOf(Metric metric);
std::optional<size_t> IndexOf(control::Figure figure);
inline const MetricRow& RowOf(Metric metric) { return MetricsList()[IndexOf(metric)]; }

}  // namespace tally::server
