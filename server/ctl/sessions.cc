// ps, preemptibility and what changes a session.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "server/ctl/commands.h"
#include "server/ctl/control_call.h"
#include "server/ctl/preemptibility_table.h"
#include "server/ctl/session_json.h"
#include "server/ctl/table.h"

namespace tally::cli {
namespace {

namespace v1 = control::v1;
using Json = nlohmann::json;

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

int ListSessions(const Invocation& invocation) {
  v1::ListSessionsResponse response;
  if (!Call(invocation.socket, [&](auto& stub, auto& context) { return stub.ListSessions(&context, {}, &response); }))
    return 1;
  if (invocation.as_json) {
    Json rows = Json::array();
    for (const v1::Session& session : response.sessions()) rows.push_back(ToJson(session));
    fmt::print("{}\n", rows.dump(2));
    return 0;
  }
  Table table({"SESSION", "TENANT", "PID", "UID", "CLASS", "SHARE", "OBJECTIVE", "DOMAIN", "EXECUTOR", "AGE",
               "LAUNCHES", "HELD", "COPIED", "MEMORY", "PINNED", "REFUSED"});
  bool is_any_stale = false;
  for (const v1::Session& session : response.sessions()) {
    is_any_stale |= session.is_stale();
    table.AddRow({fmt::format("{}", session.id()), session.tenant(), fmt::format("{}", session.pid()),
                  fmt::format("{}", session.uid()), NameOf(session.priority_class()), ShareOf(session),
                  ObjectiveOf(session), session.domain(),
                  fmt::format("{}{}", session.executor_pid(), session.is_stale() ? "?" : ""),
                  FormatAge(session.age_ns()), fmt::format("{}", session.kernel_launches() + session.graph_launches()),
                  fmt::format("{}", session.held_launches()),
                  FormatBytes(session.host_to_device_bytes() + session.device_to_host_bytes() +
                              session.device_to_device_bytes()),
                  FormatBytes(session.device_memory_bytes()), FormatBytes(session.pinned_memory_bytes()),
                  fmt::format("{}", session.refused_calls())});
  }
  fmt::print("{}", table.ToString());
  if (response.sessions().empty()) fmt::print("no sessions: 'tally-run PROGRAM' makes one\n");
  if (is_any_stale) fmt::print("'?': this executor did not answer in time; its figures are the last known ones\n");
  return 0;
}

int ShowPreemptibility(const Invocation& invocation) {
  if (invocation.as_json) return ListSessions(invocation);
  v1::ListSessionsResponse response;
  if (!Call(invocation.socket, [&](auto& stub, auto& context) { return stub.ListSessions(&context, {}, &response); }))
    return 1;
  const std::string table = PreemptibilityTable(response);
  fmt::print("{}",
             table.empty() ? "nothing counted: best-effort programs are, while tallyd has --transforms\n" : table);
  return 0;
}

int SetPriority(const Invocation& invocation, const v1::SetPriorityRequest& request) {
  v1::SetPriorityResponse response;
  return Call(invocation.socket,
              [&](auto& stub, auto& context) { return stub.SetPriority(&context, request, &response); })
             ? 0
             : 1;
}

// Declares SESSION and hands the request's fields to be filled in.
struct Change {
  uint64_t session_id = 0;
  std::string priority;
  uint32_t number = 0;
};

std::shared_ptr<Change> DeclareChange(CLI::App& app) {
  auto change = std::make_shared<Change>();
  app.add_option("SESSION", change->session_id, "number from 'tallyctl ps'")->type_name("SESSION")->required();
  return change;
}

v1::SetPriorityRequest RequestOf(const Change& change) {
  v1::SetPriorityRequest request;
  request.set_session_id(change.session_id);
  return request;
}

}  // namespace

Action DeclarePs(CLI::App&) { return ListSessions; }

Action DeclarePreemptibility(CLI::App&) { return ShowPreemptibility; }

Action DeclareSetPriority(CLI::App& app) {
  const auto change = DeclareChange(app);
  app.add_option("CLASS", change->priority, "high or best-effort")
      ->type_name("high|best-effort")
      ->required()
      ->check(CLI::IsMember({"high", "best-effort"}));
  return [change](const Invocation& invocation) {
    v1::SetPriorityRequest request = RequestOf(*change);
    request.set_priority_class(change->priority == "high" ? v1::PRIORITY_CLASS_HIGH : v1::PRIORITY_CLASS_BEST_EFFORT);
    return SetPriority(invocation, request);
  };
}

Action DeclareSetWeight(CLI::App& app) {
  const auto change = DeclareChange(app);
  app.add_option("WEIGHT", change->number, "1 to 10000; the default is 100")
      ->type_name("WEIGHT")
      ->required()
      ->check(CLI::Range(1, 10000));
  return [change](const Invocation& invocation) {
    v1::SetPriorityRequest request = RequestOf(*change);
    request.set_weight(change->number);
    return SetPriority(invocation, request);
  };
}

Action DeclareSetLevel(CLI::App& app) {
  const auto change = DeclareChange(app);
  app.add_option("LEVEL", change->number, "0 to 7, higher comes first; the default is 0")
      ->type_name("LEVEL")
      ->required()
      ->check(CLI::Range(0, 7));
  return [change](const Invocation& invocation) {
    v1::SetPriorityRequest request = RequestOf(*change);
    request.set_level(change->number);
    return SetPriority(invocation, request);
  };
}

}  // namespace tally::cli
