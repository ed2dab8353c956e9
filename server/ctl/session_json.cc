#include "server/ctl/session_json.h"

#include <nlohmann/json.hpp>
#include <string>

#include "proto/control/session_fields.h"
#include "server/ctl/control_call.h"

namespace tally::cli {
namespace {

namespace v1 = control::v1;
using Json = nlohmann::json;

Json PreemptibilityOf(const v1::Session& session) {
  Json rows = Json::array();
  for (const v1::CoveredTime& covered : session.coverage()) {
    rows.push_back({{"by", covered.by()}, {"reason", covered.reason()}, {"gpu_time_ns", covered.gpu_time_ns()}});
  }
  return rows;
}

Json BusyOf(const google::protobuf::RepeatedPtrField<v1::BusyTime>& list) {
  Json rows = Json::array();
  for (const v1::BusyTime& busy : list) {
    rows.push_back({{"gpu", busy.gpu()}, {"class", NameOf(busy.priority_class())}, {"busy_ns", busy.busy_ns()}});
  }
  return rows;
}

}  // namespace

Json ToJson(const v1::GetTotalsResponse& totals) {
  return {{"sessions", totals.sessions()},
          {"high_priority_sessions", totals.high_priority_sessions()},
          {"executors", totals.executors()},
          {"device_memory_bytes", totals.device_memory_bytes()},
          {"kernel_launches", totals.kernel_launches()},
          {"graph_launches", totals.graph_launches()},
          {"held_launches", totals.held_launches()},
          {"busy", BusyOf(totals.busy())}};
}

Json ToJson(const v1::Session& session) {
  Json row = {{"id", session.id()},
              {"tenant", session.tenant()},
              {"pid", session.pid()},
              {"uid", session.uid()},
              {"class", NameOf(session.priority_class())},
              {"domain", session.domain()},
              {"executor_pid", session.executor_pid()},
              {"driver", session.driver()},
              {"age_ns", session.age_ns()},
              {"weight", session.weight()},
              {"level", session.level()},
              {"turnaround_ns", session.turnaround_ns()},
              {"window", session.window()},
              {"coverage", PreemptibilityOf(session)},
              {"busy", BusyOf(session.busy())},
              {"slo", session.slo()},
              {"cgroup", session.cgroup()},
              {"grant_id", session.grant_id()},
              {"namespace", session.namespace_()},
              {"pod", session.pod()},
              {"container", session.container()},
              {"device_memory_limit_bytes", session.device_memory_limit_bytes()},
              {"is_stale", session.is_stale()}};
  control::VisitFigures(session, [&](const std::string& name, auto value) { row[name] = value; });
  return row;
}

}  // namespace tally::cli
