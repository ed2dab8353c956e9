// From two samples of tallyd's figures to the rows that `tallyctl top` shows. Pure: no terminal, no clock, no socket.
//
//   TopSample before, now --> TopViewOf --> TopView: GPUs, totals, rows with rates --> SortRows --> page.h
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/control/control.pb.h"
#include "server/ctl/gpu_readings.h"

namespace tally::cli {

// What was asked at one moment.
struct TopSample {
  uint64_t at_ns = 0;  // monotonic
  control::v1::ListSessionsResponse sessions;
  control::v1::ListExecutorsResponse executors;
  control::v1::VersionResponse version;
  std::vector<GpuReading> gpus;
};

// A session, or all sessions of a tenant in one class. What is missing is not known (yet).
struct TopRow {
  std::vector<uint64_t> session_ids;  // ascending, never empty
  std::string tenant;
  int32_t pid = 0;  // 0: several
  uint32_t uid = 0;
  bool is_high = false;
  std::optional<uint32_t> rank;  // the weight of a best-effort one, the level of a high-priority one; none: they differ
  bool is_stale = false;         // its executor did not answer: figures are the last known ones
  std::optional<double> busy_share;  // of the time it had work on a GPU; on several GPUs it can be more than 1
  std::string gpus;                  // on which it has had work: "0,3"; "-": none; of a tenant "-", too, if they differ
  uint64_t memory_bytes = 0;
  std::optional<double> launches_per_s;
  std::optional<double> held_per_s;  // launches and copies that had to wait for admission
  std::string objective;             // "p99=2ms"; empty: none
  uint64_t observed_ns = 0;          // 0: not known yet
  bool is_objective_missed = false;
  uint64_t age_ns = 0;
};

struct TopTotals {
  size_t num_high = 0, num_best_effort = 0;  // sessions
  size_t num_executors = 0;
  std::optional<double> launches_per_s, held_per_s;
};

struct TopView {
  std::string daemon;  // which one, for people
  std::vector<GpuReading> gpus;
  TopTotals totals;
  std::vector<TopRow> rows;  // by id
};

// `before` may be null: then there are no rates. A session that opened since then has rates since it opened.
TopView TopViewOf(const TopSample* before, const TopSample& now, bool by_tenant);

// "p99=2ms" -> 2,000,000; 0 if it is none.
uint64_t ObjectiveNs(const std::string& objective);

}  // namespace tally::cli
