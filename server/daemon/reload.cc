#include "server/daemon/reload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tally::server {
namespace {

enum class Applies { kNow, kNewExecutors, kRestart };

struct Row {
  const char* key;
  Applies when;
  bool (*is_same)(const DaemonConfig& a, const DaemonConfig& b);
  void (*copy)(const DaemonConfig& from, DaemonConfig& to);
};

template <auto member>
constexpr Row RowOf(const char* key, Applies when) {
  return {key, when, [](const DaemonConfig& a, const DaemonConfig& b) { return a.*member == b.*member; },
          [](const DaemonConfig& from, DaemonConfig& to) { to.*member = from.*member; }};
}

// What decides where a session goes (share_*) or how executors are balanced against one another (time_slice_us) stays:
// programs that run have been placed by it.
constexpr Row kRows[] = {
    RowOf<&DaemonConfig::socket>("socket", Applies::kRestart),
    RowOf<&DaemonConfig::allowed_uids>("allowed_uids", Applies::kNow),
    RowOf<&DaemonConfig::high_priority_uids>("high_priority_uids", Applies::kNow),
    RowOf<&DaemonConfig::grants>("grants", Applies::kNow),
    RowOf<&DaemonConfig::default_priority>("default_priority", Applies::kNow),
    RowOf<&DaemonConfig::share_domains_between_users>("share_domains_between_users", Applies::kRestart),
    RowOf<&DaemonConfig::share_contexts>("share_contexts", Applies::kRestart),
    RowOf<&DaemonConfig::shows_own_sessions>("show_own_sessions", Applies::kRestart),
    RowOf<&DaemonConfig::shows_totals>("show_totals", Applies::kRestart),
    RowOf<&DaemonConfig::suspend_best_effort>("suspend_best_effort", Applies::kNewExecutors),
    RowOf<&DaemonConfig::refresh_contexts>("refresh_contexts", Applies::kNewExecutors),
    RowOf<&DaemonConfig::hold_gpu>("hold_gpu", Applies::kNewExecutors),
    RowOf<&DaemonConfig::max_sessions>("max_sessions", Applies::kNow),
    RowOf<&DaemonConfig::max_sessions_per_user>("max_sessions_per_user", Applies::kNow),
    RowOf<&DaemonConfig::max_domains_per_user>("max_domains_per_user", Applies::kNow),
    RowOf<&DaemonConfig::session_device_memory_bytes>("session_device_memory_bytes", Applies::kNewExecutors),
    RowOf<&DaemonConfig::session_pinned_memory_bytes>("session_pinned_memory_bytes", Applies::kNewExecutors),
    RowOf<&DaemonConfig::driver>("driver", Applies::kRestart),
    RowOf<&DaemonConfig::executor_idle>("executor_idle_seconds", Applies::kNewExecutors),
    RowOf<&DaemonConfig::departed_work_limit>("departed_work_limit_seconds", Applies::kNewExecutors),
    RowOf<&DaemonConfig::executor_start_limit>("executor_start_limit_seconds", Applies::kNewExecutors),
    RowOf<&DaemonConfig::policy>("policy", Applies::kNewExecutors),
    RowOf<&DaemonConfig::transforms>("transforms", Applies::kNewExecutors),
    RowOf<&DaemonConfig::turnaround_threshold>("turnaround_threshold_us", Applies::kNow),
    RowOf<&DaemonConfig::gates_rest_after>("gates_rest_after_ms", Applies::kNewExecutors),
    RowOf<&DaemonConfig::best_effort_time_slice>("time_slice_us", Applies::kRestart),
    RowOf<&DaemonConfig::starvation_bound>("starvation_bound", Applies::kNewExecutors),
    RowOf<&DaemonConfig::cache_directory>("cache_directory", Applies::kNewExecutors),
    RowOf<&DaemonConfig::metrics_address>("metrics_address", Applies::kRestart),
};

}  // namespace

Reload PlanReload(const DaemonConfig& running, const DaemonConfig& wanted) {
  Reload reload{running, {}, {}, {}};
  for (const Row& row : kRows) {
    if (row.is_same(running, wanted)) continue;
    if (row.when != Applies::kRestart) row.copy(wanted, reload.config);
    auto& keys = row.when == Applies::kNow            ? reload.now
                 : row.when == Applies::kNewExecutors ? reload.new_executors
                                                      : reload.needs_restart;
    keys.emplace_back(row.key);
  }
  return reload;
}

std::string Reload::Sentence() const {
  std::string text;
  const auto add = [&](const char* what, const std::vector<std::string>& keys) {
    if (keys.empty()) return;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", what, fmt::join(keys, ", "));
  };
  add("changed", now);
  add("for executors started from now on", new_executors);
  add("only after a restart of tallyd", needs_restart);
  return "read the configuration again: " + (text.empty() ? "nothing has changed" : text);
}

}  // namespace tally::server
