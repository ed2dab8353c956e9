// A call of control.proto to the tallyd that serves a socket.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "proto/control/control.grpc.pb.h"

namespace tally::cli {

inline constexpr std::chrono::milliseconds kCallLimit{10'000};

using ControlCall = std::function<grpc::Status(control::v1::Control::Stub& stub, grpc::ClientContext& context)>;

// control.sock beside tallyd's client socket.
std::string ControlSocketBeside(const std::string& client_socket);

// Makes one call to the tallyd of that client socket. Empty: it was answered; else one sentence that says what to do.
std::string CallControl(const std::string& client_socket, std::chrono::milliseconds limit, const ControlCall& call);

// The same for a command: prints the sentence and returns false if it fails.
bool Call(const std::string& client_socket, const ControlCall& call);

// For what executors are asked for: says on stderr that some have not answered.
void SayIfLate(uint32_t num_late_executors);

// "high", "best-effort"; never null.
const char* NameOf(control::v1::PriorityClass priority_class);

}  // namespace tally::cli
