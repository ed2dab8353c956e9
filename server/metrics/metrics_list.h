// Every metric that tallyd exports: one table. docs/metrics.md is checked against it by a test.
#pragma once

#include <cstddef>
#include <span>

namespace tally::server {

enum class MetricKind { kCounter, kGauge, kHistogram };

// Index into MetricsList(): what exporter.cc fills.
enum class Metric : size_t {
  kTenantKernelLaunches,
  kTenantGraphLaunches,
  kTenantCopiedBytes,
  kTenantDeviceMemoryBytes,
  kTenantPinnedMemoryBytes,
  kTenantRequests,
  kTenantRefusedCalls,
  kTenantFailedCalls,
  kTenantGpuSeconds,
  kTenantHeldLaunches,
  kTenantHeldSeconds,
  kTenantVariedLaunches,
  kTenantYields,
  kTenantTimedYields,
  kTenantYieldSeconds,
  kTenantCoveredSeconds,
  kTenantStopSeconds,
  kTenantResumedLaunches,
  kTenantResumedBlocks,
  kTenantSloRequests,
  kSloObjective,
  kSloObserved,
  kSloCaution,
  kTuning,
  kRefusedCalls,
  kSessions,
  kSessionsRefused,
  kStaleSessions,
  kExecutors,
  kExecutorPolicy,
  kExecutorTimeSlice,
  kExecutorTimeSlicesRefused,
  kExecutorSuspension,
  kExecutorSuspensions,
  kExecutorStandstills,
  kExecutorRefreshes,
  kForcedSwitch,
  kTimeSlicesAct,
  kExecutorStarts,
  kExecutorFaults,
  kExecutorFailures,
  kUptimeSeconds,
  kBuild,
  kCount,
};

struct MetricRow {
  const char* name;
  MetricKind kind;
  const char* unit;    // "launches", "bytes", ...
  const char* labels;  // names, separated by ", "; "" for none
  const char* sentence;
};

// In the order of Metric, kCount rows.
std::span<const MetricRow> MetricsList();
inline const MetricRow& RowOf(Metric metric) { return MetricsList()[static_cast<size_t>(metric)]; }

}  // namespace tally::server
