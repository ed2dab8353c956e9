#include "server/ctl/top/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include "server/ctl/session_gpus.h"
#include "server/ctl/table.h"

namespace tally::cli {
namespace {

using control::v1::Session;

// How long it had work on GPUs; nothing: this tallyd does not count that.
std::optional<uint64_t> BusyTimeOf(const Session& session) {
  const auto found = session.figures().find("busy_ns");
  return found == session.figures().end() ? std::nullopt : std::optional(found->second);
}

uint64_t LaunchesOf(const Session& session) { return session.kernel_launches() + session.graph_launches(); }

// Per second. A counter that went back belongs to something else.
std::optional<double> Rate(uint64_t before, uint64_t now, uint64_t elapsed_ns) {
  if (now < before || elapsed_ns == 0) return std::nullopt;
  return static_cast<double>(now - before) * 1e9 / static_cast<double>(elapsed_ns);
}

void Add(const std::optional<double>& more, std::optional<double>* sum) {
  if (more) *sum = sum->value_or(0) + *more;
}

const Session* Find(const TopSample* sample, uint64_t id) {
  if (sample == nullptr) return nullptr;
  for (const Session& session : sample->sessions.sessions()) {
    if (session.id() == id) return &session;
  }
  return nullptr;
}

void FillRates(const TopSample* before, const TopSample& now, const Session& session, TopRow* row) {
  if (before == nullptr || session.is_stale()) return;
  static const Session kNothing;
  const Session* earlier = Find(before, session.id());
  if (earlier != nullptr && earlier->is_stale()) return;  // its figures are older than the sample
  const uint64_t between_ns = now.at_ns - before->at_ns;
  const uint64_t elapsed_ns = earlier != nullptr ? between_ns : std::min(between_ns, session.age_ns());
  if (earlier == nullptr) earlier = &kNothing;
  row->launches_per_s = Rate(LaunchesOf(*earlier), LaunchesOf(session), elapsed_ns);
  row->held_per_s = Rate(earlier->held_launches(), session.held_launches(), elapsed_ns);
  if (const auto time = BusyTimeOf(session)) {
    const auto share = Rate(BusyTimeOf(*earlier).value_or(0), *time, elapsed_ns);
    if (share) row->busy_share = *share / 1e9;
  }
}

TopRow RowOf(const TopSample* before, const TopSample& now, const Session& session) {
  TopRow row;
  row.session_ids = {session.id()};
  row.tenant = session.tenant();
  row.pid = session.pid();
  row.uid = session.uid();
  row.is_high = session.priority_class() == control::v1::PRIORITY_CLASS_HIGH;
  row.rank = row.is_high ? session.level() : session.weight();
  row.is_stale = session.is_stale();
  row.gpus = GpusOf(session, now.gpus);
  row.memory_bytes = session.device_memory_bytes();
  row.objective = session.slo();
  row.observed_ns = session.slo().empty() ? 0 : session.slo_observed_ns();
  row.is_objective_missed = row.observed_ns > 0 && row.observed_ns > ObjectiveNs(row.objective);
  row.age_ns = session.age_ns();
  FillRates(before, now, session, &row);
  return row;
}

// How far it is from its objective; what has none is best.
double Strain(const TopRow& row) {
  const uint64_t objective_ns = ObjectiveNs(row.objective);
  return objective_ns == 0 ? -1 : static_cast<double>(row.observed_ns) / static_cast<double>(objective_ns);
}

void Join(const TopRow& more, TopRow* sum) {
  sum->session_ids.insert(sum->session_ids.end(), more.session_ids.begin(), more.session_ids.end());
  sum->pid = 0;
  if (sum->rank != more.rank) sum->rank.reset();
  if (sum->gpus != more.gpus) sum->gpus.assign(1, '-');  // "-" alone makes GCC 12 warn
  sum->is_stale |= more.is_stale;
  Add(more.busy_share, &sum->busy_share);
  sum->memory_bytes += more.memory_bytes;
  Add(more.launches_per_s, &sum->launches_per_s);
  Add(more.held_per_s, &sum->held_per_s);
  if (Strain(more) > Strain(*sum)) {
    sum->objective = more.objective;
    sum->observed_ns = more.observed_ns;
    sum->is_objective_missed = more.is_objective_missed;
  }
  sum->age_ns = std::max(sum->age_ns, more.age_ns);
}

std::vector<TopRow> ByTenant(const std::vector<TopRow>& rows) {
  std::map<std::tuple<std::string, uint32_t, bool>, size_t> places;
  std::vector<TopRow> joined;
  for (const TopRow& row : rows) {
    const auto [place, is_new] = places.try_emplace({row.tenant, row.uid, row.is_high}, joined.size());
    if (is_new) {
      joined.push_back(row);
    } else {
      Join(row, &joined[place->second]);
    }
  }
  return joined;
}

// Those of NVML; without it as many as executors have, which are then software or at least not known.
std::vector<GpuReading> GpusOf(const TopSample& now) {
  if (now.version.driver() != "sim" && !now.gpus.empty()) return now.gpus;
  uint32_t num_devices = 0;
  for (const auto& executor : now.executors.executors()) num_devices = std::max(num_devices, executor.num_devices());
  std::vector<GpuReading> gpus(num_devices);
  for (uint32_t index = 0; index < num_devices; ++index) {
    gpus[index].index = index;
    gpus[index].name = now.version.driver() == "sim" ? "software GPU" : "not known: NVML does not answer";
  }
  return gpus;
}

TopTotals TotalsOf(const std::vector<TopRow>& rows, const TopSample& now) {
  TopTotals totals;
  totals.num_executors = static_cast<size_t>(now.executors.executors_size());
  for (const TopRow& row : rows) {
    (row.is_high ? totals.num_high : totals.num_best_effort) += row.session_ids.size();
    Add(row.launches_per_s, &totals.launches_per_s);
    Add(row.held_per_s, &totals.held_per_s);
  }
  return totals;
}

}  // namespace

TopView TopViewOf(const TopSample* before, const TopSample& now, bool by_tenant) {
  TopView view;
  view.daemon = fmt::format("tallyd {}, driver {}, up {}", now.version.version(), now.version.driver(),
                            FormatAge(now.version.uptime_ns()));
  view.gpus = GpusOf(now);
  for (const Session& session : now.sessions.sessions()) view.rows.push_back(RowOf(before, now, session));
  view.totals = TotalsOf(view.rows, now);
  if (by_tenant) view.rows = ByTenant(view.rows);
  return view;
}

uint64_t ObjectiveNs(const std::string& objective) {
  const size_t at = objective.find('=');
  if (at == std::string::npos) return 0;
  double number = 0;
  const char* const end = objective.data() + objective.size();
  const auto [unit, error] = std::from_chars(objective.data() + at + 1, end, number);
  if (error != std::errc()) return 0;
  const std::string_view name(unit, end);
  const double one_ns = name == "ns" ? 1 : name == "us" ? 1e3 : name == "ms" ? 1e6 : name == "s" ? 1e9 : 0;
  return static_cast<uint64_t>(number * one_ns + 0.5);
}

}  // namespace tally::cli
