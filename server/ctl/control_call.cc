#include "server/ctl/control_call.h"

#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "proto/control/socket_paths.h"

namespace tally::cli {

namespace v1 = control::v1;

std::string ControlSocketBeside(const std::string& client_socket) {
  return control::RuntimeDirOf(client_socket) + "/" + control::kControlSocketName;
}

std::string CallControl(const std::string& client_socket, std::chrono::milliseconds limit, const ControlCall& call) {
  std::string socket = ControlSocketBeside(client_socket);
  const std::string only_for =
      fmt::format("the control socket '{}' is only for the user who runs tallyd (try sudo)", socket);
  bool is_view = false;
  if (::access(socket.c_str(), R_OK | W_OK) != 0) {
    if (errno != EACCES) {
      return fmt::format(
          "no tallyd serves '{}': start one with 'tallyd', or name its socket with --socket or "
          "TALLY_SOCKET",
          socket);
    }
    socket = control::RuntimeDirOf(client_socket) + "/" + control::kViewSocketName;
    if (::access(socket.c_str(), R_OK | W_OK) != 0) return only_for;
    is_view = true;
  }
  const auto stub = v1::Control::NewStub(grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + limit);
  const grpc::Status status = call(*stub, context);
  if (status.ok()) return "";
  if (is_view && status.error_code() == grpc::StatusCode::UNIMPLEMENTED) return only_for;
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return status.error_message();
  return fmt::format("no tallyd answers at '{}': start one with 'tallyd' ({})", socket, status.error_message());
}

bool Call(const std::string& client_socket, const ControlCall& call) {
  const std::string problem = CallControl(client_socket, kCallLimit, call);
  if (!problem.empty()) fmt::print(stderr, "tallyctl: {}\n", problem);
  return problem.empty();
}

void SayIfLate(uint32_t num_late_executors) {
  if (num_late_executors == 0) return;
  fmt::print(stderr, "tallyctl: {} not answered in time: what {} is missing here\n",
             num_late_executors == 1 ? "an executor has" : fmt::format("{} executors have", num_late_executors),
             num_late_executors == 1 ? "it has" : "they have");
}

const char* NameOf(v1::PriorityClass priority_class) {
  if (priority_class == v1::PRIORITY_CLASS_HIGH) return "high";
  return priority_class == v1::PRIORITY_CLASS_BEST_EFFORT ? "best-effort" : "unknown";
}

}  // namespace tally::cli
