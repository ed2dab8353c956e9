// executors and version.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "proto/control/version.h"
#include "server/ctl/commands.h"
#include "server/ctl/control_call.h"
#include "server/ctl/table.h"

namespace tally::cli {
namespace {

namespace v1 = control::v1;
using Json = nlohmann::json;

const char* StateName(v1::Executor::State state) {
  switch (state) {
    case v1::Executor::STATE_STARTING:
      return "starting";
    case v1::Executor::STATE_SERVING:
      return "serving";
    case v1::Executor::STATE_RETIRING:
      return "retiring";
    default:
      return "unknown";
  }
}

std::string PolicyOf(const v1::Executor& executor) {
  if (executor.policy().empty()) return "-";
  return fmt::format("{} ({})", executor.policy(), executor.policy_reason());
}

std::string SliceOf(const v1::Executor& executor) {
  if (executor.time_slice_us() == 0) return "-";
  const bool is_one = executor.shortest_time_slice_us() == executor.time_slice_us();
  const std::string least = is_one ? "" : fmt::format("{} to ", executor.shortest_time_slice_us());
  return fmt::format("{}{}{}", least, executor.time_slice_us(), executor.is_time_slice_refused() ? " (refused)" : "");
}

std::string DeschedulingOf(const v1::Executor& executor) {
  if (executor.suspension() != "on") return executor.suspension();
  const uint64_t standstills = executor.num_standstills();
  return fmt::format("{} times", executor.num_suspensions()) +
         (standstills == 0 ? "" : fmt::format(", stood still {}", standstills));
}

int ListExecutors(const Invocation& invocation) {
  v1::ListExecutorsResponse response;
  if (!Call(invocation.socket, [&](auto& stub, auto& context) { return stub.ListExecutors(&context, {}, &response); }))
    return 1;
  if (invocation.as_json) {
    Json rows = Json::array();
    for (const v1::Executor& executor : response.executors()) {
      rows.push_back({{"pid", executor.pid()},
                      {"domain", executor.domain()},
                      {"class", NameOf(executor.priority_class())},
                      {"state", StateName(executor.state())},
                      {"driver", executor.driver()},
                      {"num_devices", executor.num_devices()},
                      {"num_sessions", executor.num_sessions()},
                      {"age_ns", executor.age_ns()},
                      {"is_adopted", executor.is_adopted()},
                      {"policy", executor.policy()},
                      {"policy_reason", executor.policy_reason()},
                      {"time_slice_us", executor.time_slice_us()},
                      {"shortest_time_slice_us", executor.shortest_time_slice_us()},
                      {"is_time_slice_refused", executor.is_time_slice_refused()},
                      {"suspension", executor.suspension()},
                      {"num_suspensions", executor.num_suspensions()},
                      {"num_standstills", executor.num_standstills()},
                      {"num_refreshes", executor.num_refreshes()}});
    }
    fmt::print("{}\n", rows.dump(2));
    return 0;
  }
  Table table({"PID", "DOMAIN", "CLASS", "STATE", "SESSIONS", "DEVICES", "POLICY", "SLICE US", "SUSPENDED", "AGE",
               "FROM", "DRIVER"});
  for (const v1::Executor& executor : response.executors()) {
    table.AddRow({fmt::format("{}", executor.pid()), executor.domain(), NameOf(executor.priority_class()),
                  StateName(executor.state()), fmt::format("{}", executor.num_sessions()),
                  fmt::format("{}", executor.num_devices()), PolicyOf(executor), SliceOf(executor),
                  DeschedulingOf(executor), FormatAge(executor.age_ns()), executor.is_adopted() ? "adopted" : "started",
                  executor.driver()});
  }
  fmt::print("{}", table.ToString());
  if (response.executors().empty()) fmt::print("no executors: the first program of a domain starts its executor\n");
  return 0;
}

int ShowVersion(const Invocation& invocation) {
  v1::VersionResponse response;
  if (!Call(invocation.socket, [&](auto& stub, auto& context) { return stub.Version(&context, {}, &response); }))
    return 1;
  if (invocation.as_json) {
    const Json row = {{"version", response.version()},
                      {"protocol_version", response.protocol_version()},
                      {"api_table_hash", fmt::format("{:016x}", response.api_table_hash())},
                      {"pid", response.pid()},
                      {"uptime_ns", response.uptime_ns()},
                      {"socket", response.socket()},
                      {"driver", response.driver()}};
    fmt::print("{}\n", row.dump(2));
    return 0;
  }
  fmt::print("{}\n", control::VersionLine("tallyctl"));
  fmt::print("tallyd {} (protocol {}, driver table {:016x}), process {}, up {}, serves {}, driver {}\n",
             response.version(), response.protocol_version(), response.api_table_hash(), response.pid(),
             FormatAge(response.uptime_ns()), response.socket(), response.driver());
  return 0;
}

}  // namespace

Action DeclareExecutors(CLI::App&) { return ListExecutors; }

Action DeclareVersion(CLI::App&) { return ShowVersion; }

}  // namespace tally::cli
