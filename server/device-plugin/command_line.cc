#include "server/device-plugin/command_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/command_line.h"
#include "proto/control/amounts.h"
#include "proto/control/socket_paths.h"
#include "proto/control/version.h"
#include "server/ctl/cdi_specification.h"
#include "server/ctl/client_library.h"

namespace tally::device_plugin {
namespace {

constexpr const char* kDescription =
    "tally-device-plugin offers the GPUs that tallyd shares to Kubernetes: tally.dev/gpu for best-effort programs,\n"
    "and tally.dev/gpu-high for high-priority ones. A container that gets one is a tenant of its own.";

constexpr const char* kFooter =
    "\nExamples:\n"
    "  tally-device-plugin --devices 10 --memory 7G --high-devices 2\n"
    "  tally-device-plugin --cdi-directory /var/run/cdi   for engines that know CDI\n"
    "\nEnvironment:\n"
    "  TALLY_SOCKET      stands in for --socket\n"
    "  TALLY_CLIENT_DIR  where Tally's libcuda.so.1 is, unless --client-library says so\n"
    "  TALLY_LOG         error, warning, info (default) or debug\n"
    "\nSignals:\n"
    "  SIGTERM, SIGINT  end it; containers that run keep what they have\n"
    "\nExit status:\n"
    "  0  ended by a signal\n"
    "  1  it cannot start; one sentence says why\n"
    "  2  wrong options";

// As tallyctl reads amounts. Empty: it is one, now in bytes.
std::string ToBytes(std::string& text) {
  const auto bytes = control::ParseBytes(text);
  if (!bytes) return fmt::format("'{}' is no amount of memory: say a size like 8G", text);
  text = std::to_string(*bytes);
  return "";
}

void DeclareResource(CLI::App& app, Resource& resource, const std::string& prefix, const std::string& what) {
  app.add_option("--" + prefix + "devices", resource.devices_per_gpu,
                 fmt::format("how many containers may share a GPU as {} ones (default {}); 0: none", what,
                             resource.devices_per_gpu))
      ->type_name("COUNT")
      ->check(CLI::Range(0, kMostDevicesPerGpu));
  app.add_option("--" + prefix + "memory", resource.memory_bytes,
                 fmt::format("device memory that a {} container may hold, as of 'tallyctl grant create --memory' "
                             "(default: as tallyd is configured)",
                             what))
      ->type_name("SIZE")
      ->transform(CLI::Validator(ToBytes, ""));
}

}  // namespace

std::variant<PluginOptions, int> ParsePluginCommandLine(int argc, char** argv) {
  PluginOptions options;
  options.socket = control::FindSocket(::geteuid());
  options.places.image_libraries.assign(std::begin(cli::kImageLibraries), std::end(cli::kImageLibraries));
  Resource best_effort{"tally.dev/gpu", "tally-gpu.sock", "gpu-", false, 10, 0};
  Resource high{"tally.dev/gpu-high", "tally-gpu-high.sock", "gpu-high-", true, 1, 0};

  CLI::App app(kDescription, "tally-device-plugin");
  app.footer(kFooter);
  app.set_version_flag("--version", control::VersionLine("tally-device-plugin"));
  DeclareResource(app, best_effort, "", "best-effort");
  DeclareResource(app, high, "high-", "high-priority");
  app.add_option("--socket", options.socket, "tallyd's, of clients; the same path as on the host")->type_name("SOCKET");
  app.add_option("--plugin-directory", options.plugin_directory, "kubelet's, for sockets of device plugins")
      ->type_name("DIRECTORY");
  app.add_option("--pod-resources", options.pod_resources, "kubelet's socket that says which pod has what")
      ->type_name("SOCKET");
  app.add_option("--client-library", options.places.client_library,
                 "Tally's libcuda.so.1, where the host has it (default: the installed one)")
      ->type_name("FILE");
  app.add_option("--image-library", options.places.image_libraries,
                 "where programs of the image find libcuda.so.1 (may be repeated; default: the loaders' directories of "
                 "Debian, Ubuntu, Red Hat and SUSE)")
      ->type_name("PATH");
  app.add_option("--cdi-directory", options.places.cdi_directory,
                 "say containers' mounts by CDI specifications, written here, and not to kubelet")
      ->type_name("DIRECTORY");
  app.add_option("--executor-cgroup", options.executor_cgroup,
                 "move tallyd's executors into this control group of the machine, so that they outlive tallyd's pod; "
                 "needs a privileged container and the host's process ids")
      ->type_name("DIRECTORY");
  if (const auto exit_status = ParseCommandLine(app, argc, argv)) return *exit_status;

  if (options.places.client_library.empty()) {
    const auto library = cli::FindClientLibrary();
    if (!library) {
      fmt::print(stderr, "tally-device-plugin: {}: install Tally, or name it with --client-library\n",
                 library.error().message());
      return 1;
    }
    options.places.client_library = *library;
  }
  options.resources = {best_effort, high};
  return options;
}

}  // namespace tally::device_plugin
