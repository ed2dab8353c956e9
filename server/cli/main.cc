// tallyctl: a client of control.proto for people and scripts. Links nothing of the daemon.
#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grpcpp/create_channel.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "proto/control/control.grpc.pb.h"
#include "proto/control/socket_paths.h"
#include "server/cli/coverage_table.h"
#include "server/cli/table.h"
#include "server/daemon/version.h"

namespace tally::cli {
namespace {

namespace v1 = control::v1;
using Json = nlohmann::json;

constexpr std::chrono::seconds kCallLimit{10};

const char* NameOf(v1::PriorityClass priority_class) {
  if (priority_class == v1::PRIORITY_CLASS_HIGH) return "high";
  return priority_class == v1::PRIORITY_CLASS_BEST_EFFORT ? "best-effort" : "unknown";
}

const char* NameOf(v1::Executor::State state) {
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

class Client {
 public:
  explicit Client(std::string socket)
      : socket_(std::move(socket)),
        stub_(v1::Control::NewStub(grpc::CreateChannel("unix:" + socket_, grpc::InsecureChannelCredentials()))) {}

  // Makes one call; prints one sentence and returns false if it fails.
  template <typename Call>
  bool Try(Call call) {
    if (::access(socket_.c_str(), R_OK | W_OK) != 0) {
      if (errno == EACCES) {
        fmt::print(stderr, "tallyctl: the control socket '{}' is only for the user who runs tallyd (try sudo)\n",
                   socket_);
      } else {
        fmt::print(stderr,
                   "tallyctl: no tallyd serves '{}': start one with 'tallyd', or name its socket with --socket or "
                   "TALLY_SOCKET\n",
                   socket_);
      }
      return false;
    }
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
    const grpc::Status status = call(*stub_, context);
    if (status.ok()) return true;
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      fmt::print(stderr, "tallyctl: no tallyd answers at '{}': start one with 'tallyd' ({})\n", socket_,
                 status.error_message());
    } else {
      fmt::print(stderr, "tallyctl: {}\n", status.error_message());
    }
    return false;
  }

 private:
  std::string socket_;
  std::unique_ptr<v1::Control::Stub> stub_;
};

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

Json CoverageOf(const v1::Session& session) {
  Json rows = Json::array();
  for (const v1::CoveredTime& covered : session.coverage()) {
    rows.push_back({{"by", covered.by()}, {"reason", covered.reason()}, {"gpu_time_ns", covered.gpu_time_ns()}});
  }
  return rows;
}

bool ListSessions(Client& client, bool as_json) {
  v1::ListSessionsResponse response;
  if (!client.Try([&](auto& stub, auto& context) { return stub.ListSessions(&context, {}, &response); })) return false;
  if (as_json) {
    Json rows = Json::array();
    for (const v1::Session& session : response.sessions()) {
      rows.push_back({{"id", session.id()},
                      {"tenant", session.tenant()},
                      {"pid", session.pid()},
                      {"uid", session.uid()},
                      {"class", NameOf(session.priority_class())},
                      {"domain", session.domain()},
                      {"executor_pid", session.executor_pid()},
                      {"driver", session.driver()},
                      {"age_ns", session.age_ns()},
                      {"kernel_launches", session.kernel_launches()},
                      {"graph_launches", session.graph_launches()},
                      {"host_to_device_bytes", session.host_to_device_bytes()},
                      {"device_to_host_bytes", session.device_to_host_bytes()},
                      {"device_to_device_bytes", session.device_to_device_bytes()},
                      {"device_memory_bytes", session.device_memory_bytes()},
                      {"pinned_memory_bytes", session.pinned_memory_bytes()},
                      {"requests", session.requests()},
                      {"refused_calls", session.refused_calls()},
                      {"failed_calls", session.failed_calls()},
                      {"weight", session.weight()},
                      {"level", session.level()},
                      {"turnaround_ns", session.turnaround_ns()},
                      {"gpu_time_ns", session.gpu_time_ns()},
                      {"held_launches", session.held_launches()},
                      {"held_ns", session.held_ns()},
                      {"sliced_launches", session.sliced_launches()},
                      {"worker_launches", session.worker_launches()},
                      {"gated_launches", session.gated_launches()},
                      {"yields", session.yields()},
                      {"timed_yields", session.timed_yields()},
                      {"yield_seen_ns", session.yield_seen_ns()},
                      {"yield_written_ns", session.yield_written_ns()},
                      {"yield_left_ns", session.yield_left_ns()},
                      {"coverage", CoverageOf(session)},
                      {"stops", session.stops()},
                      {"stop_ns", session.stop_ns()},
                      {"resumed_launches", session.resumed_launches()},
                      {"resumed_blocks", session.resumed_blocks()},
                      {"slo", session.slo()},
                      {"slo_requests", session.slo_requests()},
                      {"slo_observed_ns", session.slo_observed_ns()},
                      {"slo_caution", session.slo_caution()},
                      {"is_stale", session.is_stale()}});
    }
    fmt::print("{}\n", rows.dump(2));
    return true;
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
  return true;
}

bool ShowCoverage(Client& client, bool as_json) {
  if (as_json) return ListSessions(client, true);
  v1::ListSessionsResponse response;
  if (!client.Try([&](auto& stub, auto& context) { return stub.ListSessions(&context, {}, &response); })) return false;
  const std::string table = CoverageTable(response);
  fmt::print("{}",
             table.empty() ? "nothing counted: best-effort programs are, while tallyd has --transforms\n" : table);
  return true;
}

std::string SliceOf(const v1::Executor& executor) {
  if (executor.time_slice_us() == 0) return "-";
  return fmt::format("{}{}", executor.time_slice_us(), executor.is_time_slice_refused() ? " (refused)" : "");
}

std::string SuspensionOf(const v1::Executor& executor) {
  if (executor.suspension() != "on") return executor.suspension();
  const uint64_t standstills = executor.num_standstills();
  return fmt::format("{} times", executor.num_suspensions()) +
         (standstills == 0 ? "" : fmt::format(", stood still {}", standstills));
}

bool ListExecutors(Client& client, bool as_json) {
  v1::ListExecutorsResponse response;
  if (!client.Try([&](auto& stub, auto& context) { return stub.ListExecutors(&context, {}, &response); })) return false;
  if (as_json) {
    Json rows = Json::array();
    for (const v1::Executor& executor : response.executors()) {
      rows.push_back({{"pid", executor.pid()},
                      {"domain", executor.domain()},
                      {"class", NameOf(executor.priority_class())},
                      {"state", NameOf(executor.state())},
                      {"driver", executor.driver()},
                      {"num_devices", executor.num_devices()},
                      {"num_sessions", executor.num_sessions()},
                      {"age_ns", executor.age_ns()},
                      {"is_adopted", executor.is_adopted()},
                      {"policy", executor.policy()},
                      {"time_slice_us", executor.time_slice_us()},
                      {"is_time_slice_refused", executor.is_time_slice_refused()},
                      {"suspension", executor.suspension()},
                      {"num_suspensions", executor.num_suspensions()},
                      {"num_standstills", executor.num_standstills()},
                      {"num_refreshes", executor.num_refreshes()}});
    }
    fmt::print("{}\n", rows.dump(2));
    return true;
  }
  Table table({"PID", "DOMAIN", "CLASS", "STATE", "SESSIONS", "DEVICES", "POLICY", "SLICE US", "SUSPENDED", "AGE",
               "FROM", "DRIVER"});
  for (const v1::Executor& executor : response.executors()) {
    table.AddRow({fmt::format("{}", executor.pid()), executor.domain(), NameOf(executor.priority_class()),
                  NameOf(executor.state()), fmt::format("{}", executor.num_sessions()),
                  fmt::format("{}", executor.num_devices()), executor.policy(), SliceOf(executor),
                  SuspensionOf(executor), FormatAge(executor.age_ns()), executor.is_adopted() ? "adopted" : "started",
                  executor.driver()});
  }
  fmt::print("{}", table.ToString());
  if (response.executors().empty()) fmt::print("no executors: the first program of a domain starts its executor\n");
  return true;
}

// As people write it, without the parameters' types; cut to `width`.
std::string Readable(const std::string& kernel, size_t width) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(kernel.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  std::string name = status == 0 ? text.get() : kernel;
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (size_t at; (at = name.find(kUnnamed)) != std::string::npos;) name.erase(at, kUnnamed.size());
  if (const size_t at = name.find('('); status == 0 && at != std::string::npos) name.erase(at);
  return name.size() <= width ? name : name.substr(0, width - 3) + "...";
}

std::string FormOf(const v1::Kernel& kernel) {
  switch (kernel.form()) {
    case v1::Kernel::FORM_ORIGINAL:
      return "original";
    case v1::Kernel::FORM_SLICES:
      return fmt::format("slices({})", kernel.degree());
    case v1::Kernel::FORM_WORKERS:
      return fmt::format("workers({})", kernel.degree());
    case v1::Kernel::FORM_GATED:
      return fmt::format("gated({})", kernel.degree());
    default:
      return "unknown";
  }
}

std::string Size3(const google::protobuf::RepeatedField<uint32_t>& sizes) {
  return fmt::format("{}", fmt::join(sizes, "x"));
}

std::string Microseconds(uint64_t time_ns) {
  return time_ns == 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(time_ns) / 1e3);
}

// "+3 %", what the form costs against the original.
std::string CostOf(const v1::Kernel& kernel) {
  if (kernel.original_duration_ns() == 0 || kernel.duration_ns() == 0) return "-";
  const double ratio =
      static_cast<double>(kernel.duration_ns()) / static_cast<double>(kernel.original_duration_ns()) - 1;
  return fmt::format("{:+.0f} %", ratio * 100);
}

bool ListKernels(Client& client, bool as_json) {
  v1::ListKernelsResponse response;
  if (!client.Try([&](auto& stub, auto& context) { return stub.ListKernels(&context, {}, &response); })) return false;
  if (as_json) {
    Json rows = Json::array();
    for (const v1::Kernel& kernel : response.kernels()) {
      rows.push_back({{"name", kernel.name()},
                      {"domain", kernel.domain()},
                      {"executor_pid", kernel.executor_pid()},
                      {"grid", std::vector<uint32_t>(kernel.grid().begin(), kernel.grid().end())},
                      {"block", std::vector<uint32_t>(kernel.block().begin(), kernel.block().end())},
                      {"shared_bytes", kernel.shared_bytes()},
                      {"launches", kernel.launches()},
                      {"gpu_time_ns", kernel.gpu_time_ns()},
                      {"form", FormOf(kernel)},
                      {"duration_ns", kernel.duration_ns()},
                      {"turnaround_ns", kernel.turnaround_ns()},
                      {"is_turnaround_measured", kernel.is_turnaround_measured()},
                      {"original_duration_ns", kernel.original_duration_ns()},
                      {"remark", kernel.remark()}});
    }
    fmt::print("{}\n", rows.dump(2));
    return true;
  }
  uint64_t total_ns = 0;
  for (const v1::Kernel& kernel : response.kernels()) total_ns += kernel.gpu_time_ns();
  Table table({"KERNEL", "GRID", "BLOCK", "LAUNCHES", "SHARE", "FORM", "US", "COST", "TURNAROUND US", "REMARK"});
  for (const v1::Kernel& kernel : response.kernels()) {
    const double share =
        total_ns == 0 ? 0 : 100.0 * static_cast<double>(kernel.gpu_time_ns()) / static_cast<double>(total_ns);
    table.AddRow(
        {Readable(kernel.name(), 48), Size3(kernel.grid()), Size3(kernel.block()), fmt::format("{}", kernel.launches()),
         fmt::format("{:.1f} %", share), FormOf(kernel), Microseconds(kernel.duration_ns()), CostOf(kernel),
         Microseconds(kernel.turnaround_ns()) + (kernel.is_turnaround_measured() ? "" : "~"), kernel.remark()});
  }
  fmt::print("{}", table.ToString());
  if (response.kernels().empty()) fmt::print("no kernels: no best-effort program has launched one yet\n");
  if (!response.kernels().empty())
    fmt::print("'~': estimated, no launch of it has been asked to give the GPU back yet\n");
  return true;
}

bool SetTurnaround(Client& client, std::optional<uint64_t> session_id, double threshold_us) {
  v1::SetTurnaroundRequest request;
  request.set_threshold_ns(static_cast<uint64_t>(threshold_us * 1e3));
  if (session_id) request.set_session_id(*session_id);
  v1::SetTurnaroundResponse response;
  return client.Try([&](auto& stub, auto& context) { return stub.SetTurnaround(&context, request, &response); });
}

bool ShowVersion(Client& client, bool as_json) {
  v1::VersionResponse response;
  if (!client.Try([&](auto& stub, auto& context) { return stub.Version(&context, {}, &response); })) return false;
  if (as_json) {
    const Json row = {{"version", response.version()},
                      {"protocol_version", response.protocol_version()},
                      {"api_table_hash", fmt::format("{:016x}", response.api_table_hash())},
                      {"pid", response.pid()},
                      {"uptime_ns", response.uptime_ns()},
                      {"socket", response.socket()},
                      {"driver", response.driver()}};
    fmt::print("{}\n", row.dump(2));
    return true;
  }
  fmt::print("{}\n", server::VersionLine("tallyctl"));
  fmt::print("tallyd {} (protocol {}, driver table {:016x}), process {}, up {}, serves {}, driver {}\n",
             response.version(), response.protocol_version(), response.api_table_hash(), response.pid(),
             FormatAge(response.uptime_ns()), response.socket(), response.driver());
  return true;
}

bool SetPriority(Client& client, const v1::SetPriorityRequest& request) {
  v1::SetPriorityResponse response;
  return client.Try([&](auto& stub, auto& context) { return stub.SetPriority(&context, request, &response); });
}

int Run(int argc, char** argv) {
  std::string socket;
  bool as_json = false;
  uint64_t session_id = 0;
  std::string priority;
  double threshold_us = 0;
  std::optional<uint64_t> turnaround_of;
  uint32_t weight = 0, level = 0;
  CLI::App app("tallyctl shows and changes what a running tallyd does.", "tallyctl");
  app.footer(
      "\nExamples:\n"
      "  tallyctl ps                        every program that shares the GPU now\n"
      "  tallyctl set-priority 7 high       session 7 is high-priority from now on\n"
      "  tallyctl set-weight 7 300          ... gets three times what a best-effort program of weight 100 gets\n"
      "  tallyctl kernels                   what best-effort programs run, and how soon it gives the GPU back\n"
      "  tallyctl coverage                  by what the GPU can be taken from each of them\n"
      "  tallyctl set-turnaround 100        best-effort kernels should give it back within 100 us\n"
      "  tallyctl set-turnaround --session 7 20   ... those of session 7 within 20 us\n"
      "  tallyctl --json ps | jq '.[].tenant'\n"
      "\nThe control socket lies beside the clients' socket and is only for the user who runs tallyd.");
  app.set_version_flag("--version", server::VersionLine("tallyctl"));
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--socket", socket,
                 "tallyd's client socket (default: TALLY_SOCKET, your own daemon's, then /run/tally/tally.sock)");
  app.add_flag("--json", as_json, "print JSON: sizes in bytes, times in nanoseconds");
  CLI::App* ps = app.add_subcommand("ps", "list the sessions: one program each");
  CLI::App* executors = app.add_subcommand("executors", "list the executor processes: one domain each");
  CLI::App* version = app.add_subcommand("version", "versions of tallyctl and of the running tallyd");
  CLI::App* set_priority = app.add_subcommand("set-priority", "change the class of a running session");
  set_priority->add_option("SESSION", session_id, "number from 'tallyctl ps'")->required();
  set_priority->add_option("CLASS", priority, "high or best-effort")
      ->required()
      ->check(CLI::IsMember({"high", "best-effort"}));
  CLI::App* set_weight = app.add_subcommand("set-weight", "change a session's part among best-effort ones");
  set_weight->add_option("SESSION", session_id, "number from 'tallyctl ps'")->required();
  set_weight->add_option("WEIGHT", weight, "1 to 10000; the default is 100")->required()->check(CLI::Range(1, 10000));
  CLI::App* set_level = app.add_subcommand("set-level", "change a session's rank among high-priority ones");
  set_level->add_option("SESSION", session_id, "number from 'tallyctl ps'")->required();
  set_level->add_option("LEVEL", level, "0 to 7, higher comes first; the default is 0")
      ->required()
      ->check(CLI::Range(0, 7));
  CLI::App* kernels = app.add_subcommand("kernels", "list the kernels of best-effort programs by GPU time");
  CLI::App* coverage =
      app.add_subcommand("coverage", "share of each best-effort program's GPU time by what can take the GPU from it");
  CLI::App* set_turnaround =
      app.add_subcommand("set-turnaround", "change within what time best-effort kernels should give the GPU back");
  set_turnaround
      ->add_option("MICROSECONDS", threshold_us, "1 to 1000000; the default is 31.6. With --session also 0: as for all")
      ->required()
      ->check(CLI::Range(0.0, 1e6));
  set_turnaround->add_option("--session", turnaround_of, "only this session's; number from 'tallyctl ps'");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    fmt::print(stderr, "tallyctl: {}. 'tallyctl --help' lists the commands.\n", error.what());
    return 2;
  }
  if (socket.empty()) socket = control::FindSocket(::geteuid());
  Client client(socket.substr(0, socket.rfind('/') + 1) + control::kControlSocketName);
  bool is_done = false;
  if (ps->parsed()) is_done = ListSessions(client, as_json);
  if (executors->parsed()) is_done = ListExecutors(client, as_json);
  if (version->parsed()) is_done = ShowVersion(client, as_json);
  if (coverage->parsed()) is_done = ShowCoverage(client, as_json);
  if (kernels->parsed()) is_done = ListKernels(client, as_json);
  if (set_turnaround->parsed()) is_done = SetTurnaround(client, turnaround_of, threshold_us);
  v1::SetPriorityRequest change;
  change.set_session_id(session_id);
  if (set_priority->parsed()) {
    change.set_priority_class(priority == "high" ? v1::PRIORITY_CLASS_HIGH : v1::PRIORITY_CLASS_BEST_EFFORT);
  }
  if (set_weight->parsed()) change.set_weight(weight);
  if (set_level->parsed()) change.set_level(level);
  if (set_priority->parsed() || set_weight->parsed() || set_level->parsed()) is_done = SetPriority(client, change);
  return is_done ? 0 : 1;
}

}  // namespace
}  // namespace tally::cli

int main(int argc, char** argv) { return tally::cli::Run(argc, argv); }
