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

// How much of what was expected found the GPU ready.
std::string HintsOf(const v1::Session& session) {
  const auto figure = [&](const char* name) {
    const auto found = session.figures().find(name);
    return found != session.figures().end() ? found->second : 0;
  };
  const uint64_t announced = figure("hints_announced");
  if (announced == 0) return "-";
  return fmt::format("{}/{}, {} false, {} late", figure("hints_hit"), announced, figure("hints_false"),
                     figure("hints_late"));
}

}  // namespace

std::string SessionTable(const v1::ListSessionsResponse& sessions, const std::vector<GpuReading>& gpus, size_t width) {
  Table table({"SESSION", "TENANT", "PID", "UID", "CLASS", "SHARE", "GPU", "OBJECTIVE", "DOMAIN", "EXECUTOR", "AGE",
               "LAUNCHES", "HELD", "COPIED", "MEMORY", "PINNED", "REFUSED", "HINTS"},
              {{0}, {0, 8}, {5}, {9}, {1}, {2}, {1}, {4, 12}, {10}, {8}, {6}, {3}, {4}, {11}, {2}, {13}, {7}, {14}});
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
                  fmt::format("{}", session.refused_calls()), HintsOf(session)});
  }
  std::string text = table.ToString(width);
  if (sessions.sessions().empty()) text += "no sessions: 'tally-run PROGRAM' makes one\n";
  if (is_any_stale) text += "'?': its executor did not answer in time; these figures are the last known ones\n";
  return text;
}

}  // namespace tally::cli
