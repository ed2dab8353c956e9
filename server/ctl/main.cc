// tallyctl: a client of control.proto for people and scripts. Links nothing of the daemon.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/command_line.h"
#include "proto/control/socket_paths.h"
#include "proto/control/version.h"
#include "server/ctl/commands.h"

namespace tally::cli {
namespace {

struct Command {
  const char* name;
  const char* description;
  Action (*declare)(CLI::App& app);
};

// In the order of --help.
constexpr Command kCommands[] = {
    {"ps", "list the sessions: one program each", DeclarePs},
    {"top", "sessions, tenants and GPUs on a full screen, or as snapshots for logs", DeclareTop},
    {"totals", "what all tenants have together", DeclareTotals},
    {"executors", "list the executor processes: one domain each", DeclareExecutors},
    {"version", "versions of tallyctl and of the running tallyd", DeclareVersion},
    {"set-priority", "change the class of a running session", DeclareSetPriority},
    {"set-weight", "change a session's part among best-effort ones", DeclareSetWeight},
    {"set-level", "change a session's rank among high-priority ones", DeclareSetLevel},
    {"kernels", "list the kernels of best-effort programs by GPU time", DeclareKernels},
    {"coverage", "share of each best-effort program's GPU time by what can take the GPU from it",
     DeclarePreemptibility},
    {"set-turnaround", "change within what time best-effort kernels should give the GPU back", DeclareSetTurnaround},
    {"window", "what the windows of programs find: launches that could run, or do run, side by side", DeclareWindow},
    {"graphs", "list the CUDA graphs of programs, and how they are launched: as a whole, in partitions, and why",
     DeclareGraphs},
    {"graph", "one of those graphs; its partitions, or its plan for several GPUs, as a picture for Graphviz",
     DeclareGraph},
    {"trace", "record for a few seconds what runs on the GPUs, and who waits: a file for ui.perfetto.dev",
     DeclareTrace},
    {"grant", "tenants with a socket of their own: create, list, revoke", DeclareGrant},
    {"doctor", "check this machine, and a program: what was found, and what to do", DeclareDoctor},
    {"cdi", "let containers use Tally: a CDI specification for Podman, Docker and others", DeclareCdi},
};

constexpr const char* kFooter =
    "\nExamples:\n"
    "  tallyctl ps                        every program that shares the GPU now\n"
    "  tallyctl top                       the same on a full screen, with rates; h shows the keys\n"
    "  tallyctl top --snapshots 10 --interval 60 >> gpus.log\n"
    "  tallyctl set-priority 7 high       session 7 is high-priority from now on\n"
    "  tallyctl set-weight 7 300          ... gets three times what a best-effort program of weight 100 gets\n"
    "  tallyctl kernels                   what best-effort programs run, and how soon it gives the GPU back\n"
    "  tallyctl coverage                  by what the GPU can be taken from each of them\n"
    "  tallyctl window                    what programs with tally-run --window have side by side, and why not more\n"
    "  tallyctl graphs                    how CUDA graphs of programs are launched, and what that costs\n"
    "  tallyctl graph 7.1 --dot | dot -Tsvg > graph.svg    the first graph of session 7, by partition\n"
    "  tallyctl trace --seconds 5 --output trace.json    to be opened at ui.perfetto.dev or chrome://tracing\n"
    "  tallyctl set-turnaround 100        best-effort kernels should give it back within 100 us\n"
    "  tallyctl set-turnaround --session 7 20   ... those of session 7 within 20 us\n"
    "  tallyctl --json ps | jq '.[].tenant'\n"
    "  tallyctl grant create team-a --memory 8G   prints the socket by which its programs come\n"
    "  tallyctl doctor ./program          is this machine in order, and can this program run?\n"
    "  tallyctl cdi generate --output /etc/cdi/tally.json   for podman run --device tally.dev/gpu=best-effort\n"
    "\nEnvironment:\n"
    "  TALLY_SOCKET       stands in for --socket\n"
    "  NO_COLOR           set and not empty: 'top' uses no colours\n"
    "  COLUMNS            how wide 'top' and 'ps' are where they do not write to a terminal (default: as they need)\n"
    "  TALLY_CLIENT_DIR   the directory of Tally's libcuda.so.1 (default: ../lib/tally/client beside tallyctl)\n"
    "\nExit status:\n"
    "  0  done\n"
    "  1  there is no tallyd or it refused; of doctor: something has failed\n"
    "  2  wrong usage\n"
    "\nFiles:\n"
    "  control.sock  beside tallyd's client socket; only for the user who runs tallyd\n"
    "  view.sock     likewise; everybody sees his own sessions there: ps, top, window, graphs, graph,\n"
    "                trace, version";

int Run(int argc, char** argv) {
  Invocation invocation;
  Action action;
  CLI::App app("tallyctl shows and changes what a running tallyd does.", "tallyctl");
  app.footer(kFooter);
  app.set_version_flag("--version", control::VersionLine("tallyctl"));
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--socket", invocation.socket,
                 "tallyd's client socket (default: TALLY_SOCKET, your own daemon's, then /run/tally/tally.sock)")
      ->type_name("SOCKET");
  app.add_flag("--json", invocation.as_json, "print JSON: sizes in bytes, times in nanoseconds");
  for (const Command& command : kCommands) {
    CLI::App* subcommand = app.add_subcommand(command.name, command.description);
    subcommand->callback([&action, carry_out = command.declare(*subcommand)] { action = carry_out; });
  }
  if (const auto exit_status = ParseCommandLine(app, argc, argv)) return *exit_status;
  if (invocation.socket.empty()) invocation.socket = control::FindSocket(::geteuid());
  return action(invocation);
}

}  // namespace
}  // namespace tally::cli

int main(int argc, char** argv) { return tally::cli::Run(argc, argv); }
