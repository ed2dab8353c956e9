#include "server/ctl/cdi_specification.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/replaced_file.h"
#include "proto/control/socket_paths.h"

namespace tally::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

OrderedJson Mount(const std::string& from, const std::string& to) {
  return {{"hostPath", from}, {"containerPath", to}, {"options", {"ro", "nosuid", "nodev", "rbind"}}};
}

OrderedJson Device(const std::string& priority) {
  return {{"name", priority}, {"containerEdits", {{"env", {"TALLY_PRIORITY=" + priority}}}}};
}

// Who it is and what it may have, its socket says. The edits of a device must not be empty.
OrderedJson DeviceOfGrant(const std::string& tenant) {
  return {{"name", tenant}, {"containerEdits", {{"env", {"TALLY_NAME=" + tenant}}}}};
}

}  // namespace

std::string CdiSpecification(const CdiPlaces& places) {
  const size_t slash = places.socket.rfind('/');
  const std::string socket_name = places.socket.substr(slash + 1);
  OrderedJson mounts = OrderedJson::array();
  // The directory and not the socket: a tallyd that is started again makes a new one. It appears where programs look
  // without being told, wherever it is outside: variables do not survive sudo, a login or `env -i`.
  mounts.push_back(Mount(places.socket.substr(0, slash), control::kSystemRuntimeDir));
  for (const std::string& library : places.image_libraries) mounts.push_back(Mount(places.client_library, library));
  mounts.push_back(Mount(places.client_library.substr(0, places.client_library.rfind('/')), kClientDirectoryInside));
  OrderedJson variables = {std::string("TRITON_LIBCUDA_PATH=") + kClientDirectoryInside,
                           "TALLY_SOCKET=" + std::string(control::kSystemRuntimeDir) + "/" + socket_name};
  OrderedJson devices = {Device("best-effort"), Device("high")};
  if (!places.tenant.empty()) devices = OrderedJson::array({DeviceOfGrant(places.tenant)});
  const OrderedJson specification = {{"cdiVersion", "0.3.0"},
                                     {"kind", "tally.dev/gpu"},
                                     {"containerEdits", {{"env", std::move(variables)}, {"mounts", std::move(mounts)}}},
                                     {"devices", std::move(devices)}};
  return specification.dump(2) + "\n";
}

std::string WriteCdiSpecification(const std::string& path, const std::string& text) {
  const std::string directory = DirectoryOf(path);
  if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST) {
    return fmt::format("cannot make the directory '{}': {}", directory, std::strerror(errno));
  }
  // What is no file is not replaced by one: /dev/null would be gone for everybody.
  struct stat there {};
  if (::lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) return fmt::format("'{}' is no file", path);
  const Status written = ReplaceFile(path, text, 0644);
  return written.ok() ? "" : "cannot " + std::string(written.message());
}

}  // namespace tally::cli
