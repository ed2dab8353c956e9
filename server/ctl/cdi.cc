// cdi generate: containers get a share of the GPU with --device tally.dev/gpu=best-effort.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/unique_fd.h"
#include "proto/control/socket_paths.h"
#include "server/ctl/cdi_specification.h"
#include "server/ctl/client_library.h"
#include "server/ctl/commands.h"

namespace tally::cli {
namespace {

struct Wish {
  std::string output = "-";
  std::string tenant;
  std::vector<std::string> image_libraries{std::begin(kImageLibraries), std::end(kImageLibraries)};
};

int Fail(const std::string& sentence) {
  fmt::print(stderr, "tallyctl: {}\n", sentence);
  return 1;
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

int Generate(const Wish& wish, const Invocation& invocation) {
  const auto library = FindClientLibrary();
  if (!library) {
    return Fail(library.error().message() + ": install Tally, or name its directory with TALLY_CLIENT_DIR");
  }
  char directory[PATH_MAX];
  const std::string socket_name = invocation.socket.substr(invocation.socket.rfind('/') + 1);
  if (::realpath(DirectoryOf(invocation.socket).c_str(), directory) == nullptr) {
    return Fail(
        fmt::format("the directory of tallyd's socket, '{}', is not there: start tallyd first, or name its "
                    "socket with --socket",
                    DirectoryOf(invocation.socket)));
  }
  if (!wish.tenant.empty() && ::access(control::GrantSocketIn(directory, wish.tenant).c_str(), F_OK) != 0) {
    return Fail(fmt::format("there is no socket of a grant '{}': {} ('tallyctl grant list' lists them)", wish.tenant,
                            std::strerror(errno)));
  }
  // Containers get the directory that holds nothing else, unless the service manager has the socket in its old place.
  const std::string plain = fmt::format("{}/{}", directory, socket_name);
  const std::string clients = control::ClientSocketIn(directory, socket_name);
  struct stat state {};
  const bool is_plain = ::access(DirectoryOf(clients).c_str(), F_OK) != 0 ||
                        (::lstat(plain.c_str(), &state) == 0 && S_ISSOCK(state.st_mode));
  std::string socket = is_plain ? plain : clients;
  if (!wish.tenant.empty()) socket = control::GrantSocketIn(directory, wish.tenant);
  const std::string text = CdiSpecification({*library, socket, wish.image_libraries, wish.tenant});
  if (wish.output == "-") {
    fmt::print("{}", text);
    return 0;
  }
  if (const std::string problem = WriteCdiSpecification(wish.output, text); !problem.empty()) {
    return Fail(problem + " (engines read /etc/cdi, which is root's: sudo tallyctl cdi generate ...)");
  }
  fmt::print("wrote {}: podman run --device tally.dev/gpu={} IMAGE PROGRAM\n", wish.output,
             wish.tenant.empty() ? "best-effort" : wish.tenant);
  return 0;
}

}  // namespace

Action DeclareCdi(CLI::App& app) {
  const auto wish = std::make_shared<Wish>();
  app.require_subcommand(1);
  app.fallthrough();
  CLI::App* generate = app.add_subcommand("generate", "write the specification of tally.dev/gpu");
  generate->add_option("--output", wish->output, "the file; engines read /etc/cdi/*.json (default: standard output)")
      ->type_name("FILE");
  generate
      ->add_option("--grant", wish->tenant,
                   "of this grant alone: the device tally.dev/gpu=TENANT, which is that tenant")
      ->type_name("TENANT");
  generate
      ->add_option("--image-library", wish->image_libraries,
                   "where programs of the image find libcuda.so.1 (may be repeated; default: the loaders' "
                   "directories of Debian, Ubuntu, Red Hat and SUSE)")
      ->type_name("PATH");
  return [wish](const Invocation& invocation) { return Generate(*wish, invocation); };
}

}  // namespace tally::cli
