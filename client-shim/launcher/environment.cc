#include "client-shim/launcher/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/installed_files.h"

namespace tally::launcher {
namespace {

// Puts `first` in front of a list separated by colons, once: tally-run may run under tally-run.
void Prepend(const char* variable, const std::string& first) {
  const char* text = std::getenv(variable);
  const std::string rest = text != nullptr ? text : "";
  if (rest == first || rest.starts_with(first + ":")) return;
  ::setenv(variable, (rest.empty() ? first : first + ":" + rest).c_str(), 1);
}

void SetUnlessEmpty(const char* variable, const std::string& value) {
  if (!value.empty()) ::setenv(variable, value.c_str(), 1);
}

constexpr const char* kArrivals = "/libtally-arrivals.so";

}  // namespace

Result<std::string> FindClientDirectory() {
  std::string directory = ClientDirectory();
  if (::access((directory + "/libcuda.so.1").c_str(), R_OK) != 0) {
    return Error(
        StatusCode::kNotFound,
        fmt::format("Tally's libcuda.so.1 is not in '{}' ({}): install Tally again, or name its directory with "
                    "TALLY_CLIENT_DIR",
                    directory, std::strerror(errno)));
  }
  // The loader splits its lists at these, and there is no way to quote them.
  if (directory.find_first_of(": ;") != std::string::npos) {
    return Error(
        StatusCode::kInvalidArgument,
        fmt::format("the loader cannot use the directory '{}' because of a space or colon in its name: install "
                    "Tally elsewhere",
                    directory));
  }
  return directory;
}

Status PrepareEnvironment(const Options& options, const std::string& client_directory, const std::string& socket) {
  Prepend("LD_LIBRARY_PATH", client_directory);
  if (options.hints == "on") {
    const std::string arrivals = client_directory + kArrivals;
    if (::access(arrivals.c_str(), R_OK) != 0) {
      return StatusFromErrno(errno, fmt::format("--hints=on needs '{}', which Tally brings along: read it", arrivals));
    }
    Prepend("LD_PRELOAD", arrivals);
  }
  Prepend("LD_PRELOAD", client_directory + "/libcuda.so.1");
  ::setenv("TRITON_LIBCUDA_PATH", client_directory.c_str(), 1);
  if (::setenv("TALLY_SOCKET", socket.c_str(), 1) != 0) return StatusFromErrno(errno, "set the environment");
  SetUnlessEmpty("TALLY_PRIORITY", options.priority);
  SetUnlessEmpty("TALLY_WEIGHT", options.weight);
  SetUnlessEmpty("TALLY_LEVEL", options.level);
  SetUnlessEmpty("TALLY_TRANSFORMS", options.transforms);
  SetUnlessEmpty("TALLY_TURNAROUND_US", options.turnaround);
  SetUnlessEmpty("TALLY_SLO", options.slo);
  SetUnlessEmpty("TALLY_WINDOW", options.window);
  SetUnlessEmpty("TALLY_GRAPHS", options.graphs);
  SetUnlessEmpty("TALLY_HINTS", options.hints);
  SetUnlessEmpty("TALLY_MEMORY", options.memory);
  SetUnlessEmpty("TALLY_SHARE", options.share);
  SetUnlessEmpty("TALLY_DOMAIN", options.domain);
  SetUnlessEmpty("TALLY_NAME", options.tenant);
  if (options.is_apart) ::setenv("TALLY_APART", "1", 1);
  return OkStatus();
}

}  // namespace tally::launcher
