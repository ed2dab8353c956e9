// tally-run: starts a program so that it loads Tally's libcuda.so.1. docs/tally-run.md is its manual.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/log.h"
#include "client-shim/launcher/daemon_check.h"
#include "client-shim/launcher/embedded.h"
#include "client-shim/launcher/environment.h"
#include "client-shim/launcher/jupyter.h"
#include "client-shim/launcher/loader.h"
#include "client-shim/launcher/options.h"
#include "client-shim/launcher/program.h"
#include "client-shim/launcher/supervise.h"
#include "proto/control/socket_paths.h"

namespace tally::launcher {
namespace {

void Say(const std::string& sentence) { fmt::print(stderr, "tally-run: {}\n", sentence); }

// With a daemon that runs already: check it, then become the program. No process of ours stays.
int RunShared(const Options& options, const Program& program, const std::string& client_directory) {
  const bool is_named = !options.socket.empty() || std::getenv("TALLY_SOCKET") != nullptr;
  const std::string socket = options.socket.empty() ? control::FindSocket(::geteuid()) : options.socket;
  Status status = CheckDaemon(socket, is_named);
  if (status.ok()) status = PrepareEnvironment(options, client_directory, socket);
  if (!status.ok()) {
    Say(status.message());
    return 1;
  }
  return Become(program, options.command);
}

int MakeKernelspec(const Options& options) {
  std::error_code error;
  std::vector<std::string> arguments{std::filesystem::read_symlink("/proc/self/exe", error).string()};
  arguments.insert(arguments.end(), options.as_given.begin(), options.as_given.end());
  const std::string python = options.command.empty() ? "python3" : options.command.front();
  const auto path = WriteKernelspec(JupyterDataDirectory(), arguments, python, options.tenant);
  if (!path) {
    Say(path.error().message());
    return 1;
  }
  fmt::print("{}\n", *path);
  return 0;
}

int RunEmbedded(const Options& options, const Program& program, const std::string& client_directory) {
  HoldSignals();
  int wait_status = 0;
  {
    auto daemon = EmbeddedDaemon::Start(options.driver);
    if (!daemon) {
      Say(daemon.error().message());
      return 1;
    }
    // The environment after the daemon: that one must not load the library which calls it.
    if (const Status prepared = PrepareEnvironment(options, client_directory, daemon->socket()); !prepared.ok()) {
      Say(prepared.message());
      return 1;
    }
    if (options.driver == "auto" && daemon->readiness().starts_with("driver=sim") && !options.is_quiet) {
      const std::string why = daemon->readiness().substr(daemon->readiness().find(' ') + 1);
      Say("using the software driver " + why);
    }
    wait_status = Supervise(program, options.command);
  }
  EndAs(wait_status);
}

int Run(int argc, char** argv) {
  auto parsed = ParseCommandLine(argc, argv);
  if (const int* exit_status = std::get_if<int>(&parsed)) return *exit_status;
  const Options& options = std::get<Options>(parsed);
  if (options.makes_kernelspec) return MakeKernelspec(options);
  const Program program = FindProgram(options.command.front());
  if (program.path.empty()) {
    Say(program.error);
    return program.exit_status;
  }
  if (!program.warning.empty()) Say("warning: " + program.warning);
  const auto client_directory = FindClientDirectory();
  if (!client_directory) {
    Say(client_directory.error().message());
    return 1;
  }
  if (!program.loader.empty()) {
    const Status loads = CheckLoader(program.image, program.loader, *client_directory + "/libcuda.so.1");
    if (!loads.ok()) {
      Say(loads.message());
      return 1;
    }
  }
  return options.is_embedded ? RunEmbedded(options, program, *client_directory)
                             : RunShared(options, program, *client_directory);
}

}  // namespace
}  // namespace tally::launcher

int main(int argc, char** argv) {
  tally::SetLogName("tally-run");
  return tally::launcher::Run(argc, argv);
}
