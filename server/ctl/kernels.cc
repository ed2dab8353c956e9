// kernels and set-turnaround.
#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "server/ctl/commands.h"
#include "server/ctl/control_call.h"
#include "server/ctl/table.h"

namespace tally::cli {
namespace {

namespace v1 = control::v1;
using Json = nlohmann::json;

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

int ListKernels(const Invocation& invocation) {
  v1::ListKernelsResponse response;
  if (!Call(invocation.socket, [&](auto& stub, auto& context) { return stub.ListKernels(&context, {}, &response); }))
    return 1;
  SayIfLate(response.late_executors());
  if (invocation.as_json) {
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
    return 0;
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
  return 0;
}

}  // namespace

Action DeclareKernels(CLI::App&) { return ListKernels; }

Action DeclareSetTurnaround(CLI::App& app) {
  struct Wish {
    double threshold_us = 0;
    std::optional<uint64_t> session_id;
  };
  const auto wish = std::make_shared<Wish>();
  app.add_option("MICROSECONDS", wish->threshold_us,
                 "1 to 1000000; the default is 31.6. With --session also 0: as for all")
      ->type_name("MICROSECONDS")
      ->required()
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--session", wish->session_id, "only this session's; number from 'tallyctl ps'")->type_name("SESSION");
  return [wish](const Invocation& invocation) {
    v1::SetTurnaroundRequest request;
    request.set_threshold_ns(static_cast<uint64_t>(wish->threshold_us * 1e3));
    if (wish->session_id) request.set_session_id(*wish->session_id);
    v1::SetTurnaroundResponse response;
    return Call(invocation.socket,
                [&](auto& stub, auto& context) { return stub.SetTurnaround(&context, request, &response); })
               ? 0
               : 1;
  };
}

}  // namespace tally::cli
