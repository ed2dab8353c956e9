// ps, preemptibility and what changes a session.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "server/ctl/commands.h"
#include "server/ctl/control_call.h"
#include "server/ctl/gpu_readings.h"
#include "server/ctl/output_width.h"
#include "server/ctl/preemptibility_table.h"
#include "server/ctl/session_json.h"
#include "server/ctl/session_table.h"

namespace tally::cli {
namespace {

namespace v1 = control::v1;
using Json = nlohmann::json;

int PrintSessionsAsJson(const Invocation& invocation) {
  v1::ListSessionsResponse response;
  if (!Call(invocation.socket, [&](auto& stub, auto& context) { return stub.ListSessions(&context, {}, &response); }))
    return 1;
  Json rows = Json::array();
  for (const v1::Session& session : response.sessions()) rows.push_back(ToJson(session));
  fmt::print("{}\n", rows.dump(2));
  return 0;
}

int ListSessions(const Invocation& invocation, bool is_wide) {
  if (invocation.as_json) return PrintSessionsAsJson(invocation);
  v1::ListSessionsResponse sessions;
  if (!Call(invocation.socket, [&](auto& stub, auto& context) { return stub.ListSessions(&context, {}, &sessions); }))
    return 1;
  fmt::print("{}", SessionTable(sessions, GpuReadings().Read(), is_wide ? kAnyWidth : OutputWidth()));
  return 0;
}

int ShowPreemptibility(const Invocation& invocation) {
  if (invocation.as_json) return PrintSessionsAsJson(invocation);
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

Action DeclarePs(CLI::App& app) {
  const auto is_wide = std::make_shared<bool>(false);
  app.add_flag("--wide", *is_wide, "every column, however wide the terminal is");
  return [is_wide](const Invocation& invocation) { return ListSessions(invocation, *is_wide); };
}

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
