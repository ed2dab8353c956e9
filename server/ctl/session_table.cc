#include "server/ctl/session_table.h"

#include <fmt/format.h>

#include "server/ctl/control_call.h"
#include "server/ctl/session_gpus.h"
#include "server/ctl/table.h"

namespace tally::cli {
namespace {

namespace v1 = control::v1;

// The weight of a best-effort session, the level of a high-priority one.
std::string ShareOf(const v1::Session& session) {
  return session.priority_class() == v1::PRIORITY_CLASS_HIGH ? fmt::format("level {}", session.level())
                                                             : fmt::format("{}", session.weight());
}

// What is wanted, what the last requests took, and how careful that makes Tally.
std::string ObjectiveOf(const v1::Session& session) {
  if (session.slo().empty()) return "-";
  const std::string observed = session.slo_observed_ns() == 0
                                   ? "?"
                                   : fmt::format("{:.3g} ms", static_cast<double>(session.slo_observed_ns()) / 1e6);
  return fmt::format("{}: {}, caution {:.2f}", session.slo(), observed, session.slo_caution());
}

uint64_t FigureOf(const v1::Session& session, const char* name) {
  const auto found = session.figures().find(name);
  return found != session.figures().end() ? found->second : 0;
}

// How much of what was expected found the GPU ready.
std::string HintsOf(const v1::Session& session) {
  const uint64_t announced = FigureOf(session, "hints_announced");
  if (announced == 0) return "-";
  return fmt::format("{}/{}, {} false, {} late", FigureOf(session, "hints_hit"), announced,
                     FigureOf(session, "hints_false"), FigureOf(session, "hints_late"));
}

std::string MeanTime(uint64_t sum_ns, uint64_t num) {
  return num == 0 ? "?" : fmt::format("{:.3g} ms", static_cast<double>(sum_ns) / static_cast<double>(num) / 1e6);
}

// Whether the GPU is held in gaps, in how many it was, and what requests took with that and without.
std::string HoldingOf(const v1::Session& session) {
  const auto figure = [&](const char* name) { return FigureOf(session, name); };
  const uint64_t num_held = figure("gaps_hit") + figure("gaps_late");
  const uint64_t num_gaps = num_held + figure("gaps_by_rule") + figure("gaps_by_guard");
  if (num_gaps == 0) return "-";
  return fmt::format("{}: {} of {} gaps, {} held, {} not", figure("prefers_holding") != 0 ? "yes" : "no", num_held,
                     num_gaps, MeanTime(figure("requests_gaps_held_ns"), figure("requests_gaps_held")),
                     MeanTime(figure("requests_gaps_open_ns"), figure("requests_gaps_open")));
}

}  // namespace

std::string SessionTable(const v1::ListSessionsResponse& sessions, const std::vector<GpuReading>& gpus, size_t width) {
  Table table(
      {"SESSION", "TENANT", "PID", "UID", "CLASS", "SHARE", "GPU", "OBJECTIVE", "DOMAIN", "EXECUTOR", "AGE", "LAUNCHES",
       "HELD", "COPIED", "MEMORY", "PINNED", "REFUSED", "HINTS", "HOLDING"},
      {{0}, {0, 8}, {5}, {9}, {1}, {2}, {1}, {4, 12}, {10}, {8}, {6}, {3}, {4}, {11}, {2}, {13}, {7}, {14}, {15}});
  bool is_any_stale = false;
  for (const v1::Session& session : sessions.sessions()) {
    is_any_stale |= session.is_stale();
    const uint64_t copied =
        session.host_to_device_bytes() + session.device_to_host_bytes() + session.device_to_device_bytes();
    table.AddRow({fmt::format("{}{}", session.id(), session.is_stale() ? "?" : ""), session.tenant(),
                  fmt::format("{}", session.pid()), fmt::format("{}", session.uid()), NameOf(session.priority_class()),
                  ShareOf(session), GpusOf(session, gpus), ObjectiveOf(session), session.domain(),
                  fmt::format("{}", session.executor_pid()), FormatAge(session.age_ns()),
                  fmt::format("{}", session.kernel_launches() + session.graph_launches()),
                  fmt::format("{}", session.held_launches()), FormatBytes(copied),
                  FormatBytes(session.device_memory_bytes()), FormatBytes(session.pinned_memory_bytes()),
                  fmt::format("{}", session.refused_calls()), HintsOf(session), HoldingOf(session)});
  }
  std::string text = table.ToString(width);
  if (sessions.sessions().empty()) text += "no sessions: 'tally-run PROGRAM' makes one\n";
  if (is_any_stale) text += "'?': its executor did not answer in time; these figures are the last known ones\n";
  return text;
}

}  // namespace tally::cli
