#include "client-shim/launcher/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/command_line.h"
#include "proto/control/amounts.h"
#include "proto/control/graph_figures.h"
#include "proto/control/window_mode.h"
#include "proto/shm/handshake_abi.h"

namespace tally::launcher {
namespace {

constexpr const char* kDescription =
    "tally-run starts a CUDA program that shares the GPU through Tally. The program is not changed: it finds Tally's\n"
    "libcuda.so.1 in place of the driver's.";

constexpr const char* kFooter =
    "\nExamples:\n"
    "  tally-run --embedded ./program          first try: nothing else needed, not even a GPU\n"
    "  tallyd &                                the service that programs share ...\n"
    "  tally-run --priority high ./inference   ... gets the GPU as if it were alone\n"
    "  tally-run python train.py               ... gets what is left (best-effort)\n"
    "\nEnvironment (options win):\n"
    "  TALLY_SOCKET, TALLY_PRIORITY, TALLY_WEIGHT, TALLY_LEVEL, TALLY_SLO, TALLY_TRANSFORMS,\n"
    "  TALLY_TURNAROUND_US, TALLY_DOMAIN, TALLY_NAME, TALLY_WINDOW, TALLY_GRAPHS, TALLY_HINTS, TALLY_MEMORY,\n"
    "  TALLY_SHARE, TALLY_APART=1   stand in for the options of these names\n"
    "  TALLY_POLICY      with --embedded: the daemon's policy\n"
    "  TALLY_CLIENT_DIR  the directory of Tally's libcuda.so.1 (default: ../lib/tally/client beside tally-run)\n"
    "  TALLY_KEEP_PTX    0: code compiled at run time goes to tallyd without its PTX\n"
    "  TALLY_LOG         error, warning (default), info or debug\n"
    "\nExit status:\n"
    "  The program's own; it dies of the signal that the program died of.\n"
    "  1    no tallyd, or none that you may use\n"
    "  2    wrong options\n"
    "  126  the program cannot be run\n"
    "  127  there is no such program";

int Refuse(const std::string& sentence) {
  fmt::print(stderr, "tally-run: {}. 'tally-run --help' says more.\n", sentence);
  return 2;
}

void FillFromEnvironment(const char* variable, std::string& option) {
  const char* text = std::getenv(variable);
  if (option.empty() && text != nullptr) option = text;
}

template <typename Number>
bool IsNumberFrom(Number least, Number most, const std::string& text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= least && number <= most;
}

bool IsDomainName(const std::string& name) {
  return name.size() < shm::kDomainNameBytes && std::all_of(name.begin(), name.end(), [](unsigned char letter) {
           return std::isalnum(letter) != 0 || letter == '-' || letter == '_' || letter == '.';
         });
}

// The options as they were given, but for one.
std::vector<std::string> AsGiven(const CLI::App& app, const CLI::Option* but) {
  std::vector<std::string> words;
  for (const CLI::Option* option : app.parse_order()) {
    if (option == but) continue;
    const bool is_flag = option->results().empty() || option->results().back() == "true";
    words.push_back(option->get_name() + (is_flag ? "" : "=" + option->results().back()));
  }
  return words;
}

}  // namespace

std::variant<Options, int> ParseCommandLine(int argc, char** argv) {
  Options options;
  CLI::App app(kDescription, "tally-run");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("tally-run ") + TALLY_VERSION);
  app.prefix_command();  // from PROGRAM on, everything is the program's
  app.add_option("--priority", options.priority, "high or best-effort (default: as tallyd is configured)")
      ->type_name("high|best-effort");
  app.add_option(
         "--weight", options.weight,
         "part of what best-effort programs get, relative to the others' (1 to 10000, default 100); where tallyd "
         "has --policy fair or tally")
      ->type_name("WEIGHT");
  app.add_option(
         "--level", options.level,
         "rank among high-priority programs: higher comes first (0 to 7, default 0); where tallyd has --policy tally")
      ->type_name("LEVEL");
  app.add_option(
         "--slo", options.slo,
         "how soon this high-priority program's requests should be done, like p99=2ms: Tally tunes what "
         "best-effort programs may do, where tallyd has --policy look-ahead, tally-paper or tally (docs/scheduling.md)")
      ->type_name("OBJECTIVE");
  app.add_option("--transforms", options.transforms,
                 "none: its kernels run as they are, whatever tallyd allows (default: as tallyd is configured)")
      ->type_name("none");
  app.add_option("--turnaround-us", options.turnaround,
                 "how soon this best-effort program's kernels should give the GPU back, in microseconds (1 to 1000000, "
                 "default: as tallyd is configured); where tallyd has --policy look-ahead, tally-paper or tally")
      ->type_name("MICROSECONDS");
  app.add_flag("--window{on}", options.window,
               "on (or no value): launches of a stream that touch different memory run side by side, with the same "
               "results; shadow: in order, and 'tallyctl window' shows what could; default: off (docs/window.md)")
      ->type_name("off|shadow|on");
  app.add_option("--graphs", options.graphs,
                 "partitions (default): a best-effort program's CUDA graphs are launched part by part while a "
                 "high-priority program may want the GPU, where tallyd stops kernels; off: always as a whole; "
                 "spread: over all GPUs that the program may use, where that is quicker (docs/task-graphs.md)")
      ->type_name("off|partitions|spread");
  app.add_flag(
         "--hints{on}", options.hints,
         "on (or no value): for --priority high: learns which requests that come by a socket are followed by work "
         "on the GPU, and has best-effort work leave it before that comes; default: off (docs/arrival-hints.md)")
      ->type_name("off|on");
  app.add_option("--memory", options.memory,
                 "device memory that programs of this name may hold together on each GPU, like 8G (default: as much as "
                 "there is, or as the grant says)")
      ->type_name("SIZE");
  app.add_option("--share", options.share,
                 "cap on the time that best-effort programs of this name have on each GPU, like 30% (default: none, or "
                 "as the grant says)")
      ->type_name("PERCENT");
  app.add_option("--domain", options.domain,
                 "run in a domain of this name: an executor of its own, about 0.5 GB of GPU memory")
      ->type_name("NAME");
  app.add_flag(
      "--apart", options.is_apart,
      "each process of the program in an executor of its own: for processes that compute together and were not "
      "started by torchrun, mpirun or srun, whose ranks are kept apart anyway (docs/sharing.md)");
  app.add_option("--name", options.tenant, "name shown by tallyctl and in metrics (default: the program's)")
      ->type_name("NAME");
  app.add_option("--socket", options.socket,
                 "tallyd's socket (default: your own daemon's if there is one, else /run/tally/tally.sock)")
      ->type_name("SOCKET");
  app.add_flag("--embedded", options.is_embedded, "start a private tallyd for this program and end it afterwards");
  app.add_option("--driver", options.driver,
                 "with --embedded: auto (default: a GPU if there is one), cuda, or sim (the software driver)")
      ->type_name("auto|cuda|sim");
  app.add_flag("--quiet", options.is_quiet, "say nothing unless something is wrong");
  const CLI::Option* const jupyter = app.add_flag(
      "--jupyter", options.makes_kernelspec,
      "start nothing: make a kernel for Jupyter that runs notebooks under tally-run with the options given here; "
      "PROGRAM is its Python (default: python3)");
  // CLI11 does not know that what it hands back unparsed is the point of the program.
  if (const auto exit_status =
          tally::ParseCommandLine(app, argc, argv, {.usage = "tally-run [OPTIONS] PROGRAM [ARGUMENTS...]"})) {
    return *exit_status;
  }
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  } else if (!options.command.empty() && options.command.front().starts_with("-")) {
    return Refuse(Unknown(app, options.command.front()));
  }
  if (options.command.empty() && !options.makes_kernelspec) return Refuse("say which program to run");
  if (options.makes_kernelspec) options.as_given = AsGiven(app, jupyter);

  FillFromEnvironment("TALLY_PRIORITY", options.priority);
  FillFromEnvironment("TALLY_WEIGHT", options.weight);
  FillFromEnvironment("TALLY_LEVEL", options.level);
  FillFromEnvironment("TALLY_TRANSFORMS", options.transforms);
  FillFromEnvironment("TALLY_TURNAROUND_US", options.turnaround);
  FillFromEnvironment("TALLY_SLO", options.slo);
  FillFromEnvironment("TALLY_WINDOW", options.window);
  FillFromEnvironment("TALLY_GRAPHS", options.graphs);
  FillFromEnvironment("TALLY_HINTS", options.hints);
  FillFromEnvironment("TALLY_MEMORY", options.memory);
  FillFromEnvironment("TALLY_SHARE", options.share);
  FillFromEnvironment("TALLY_DOMAIN", options.domain);
  FillFromEnvironment("TALLY_NAME", options.tenant);
  if (!options.priority.empty() && options.priority != "high" && options.priority != "best-effort") {
    return Refuse(fmt::format("'{}' is no priority: say high or best-effort", options.priority));
  }
  if (!options.weight.empty() && !IsNumberFrom(1, 10'000, options.weight)) {
    return Refuse(fmt::format("'{}' is no weight: say a number from 1 to 10000", options.weight));
  }
  if (!options.level.empty() && !IsNumberFrom(0, 7, options.level)) {
    return Refuse(fmt::format("'{}' is no level: say a number from 0 to 7", options.level));
  }
  if (!options.transforms.empty() && options.transforms != "none") {
    return Refuse(fmt::format("'{}' is no choice of transforms: a program can say none; what else there is tallyd says",
                              options.transforms));
  }
  if (!options.turnaround.empty() && !IsNumberFrom(1.0, 1e6, options.turnaround)) {
    return Refuse(fmt::format("'{}' is no turnaround: say microseconds, from 1 to 1000000", options.turnaround));
  }
  if (!options.window.empty() && !control::ParseWindowMode(options.window)) {
    return Refuse(fmt::format("'{}' is no window: say off, shadow or on", options.window));
  }
  if (!options.graphs.empty() && !control::ParseGraphMode(options.graphs)) {
    return Refuse(fmt::format("'{}' is no way to launch graphs: say off, partitions or spread", options.graphs));
  }
  if (!options.hints.empty() && options.hints != "on" && options.hints != "off") {
    return Refuse(fmt::format("'{}' is no choice of hints: say off or on", options.hints));
  }
  if (options.hints == "on" && options.priority != "high") {
    return Refuse("arrival hints (--hints) are for high-priority programs: say --priority high");
  }
  if (!options.memory.empty() && !control::ParseBytes(options.memory)) {
    return Refuse(fmt::format("'{}' is no amount of memory: say a size like 8G", options.memory));
  }
  if (!options.share.empty() && !control::ParseShare(options.share)) {
    return Refuse(fmt::format("'{}' is no share: say a part of GPU time like 30%", options.share));
  }
  if (!options.share.empty() && options.priority == "high") {
    return Refuse("a share of GPU time (--share) caps best-effort programs: leave it away");
  }
  if (!options.slo.empty() && options.priority == "best-effort") {
    return Refuse("an objective (--slo) is for high-priority programs: say --priority high");
  }
  // What it says, tallyd reads; what is too long for it is none.
  if (options.slo.size() >= shm::kSloBytes)
    return Refuse(fmt::format("'{}' is no objective: write it like p99=2ms", options.slo));
  if (!IsDomainName(options.domain)) {
    return Refuse(fmt::format("'{}' is no domain's name: at most {} letters, digits, '-', '_' and '.'", options.domain,
                              shm::kDomainNameBytes - 1));
  }
  if (options.is_embedded && !options.socket.empty()) return Refuse("--embedded makes its own socket: drop --socket");
  if (!options.is_embedded && !options.driver.empty()) {
    return Refuse("--driver goes with --embedded: a running tallyd has chosen its driver");
  }
  if (options.driver.empty()) options.driver = "auto";
  if (options.driver != "auto" && options.driver != "cuda" && options.driver != "sim") {
    return Refuse(fmt::format("'{}' is no driver: say auto, cuda or sim", options.driver));
  }
  return options;
}

}  // namespace tally::launcher
