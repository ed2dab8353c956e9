// Where a daemon listens unless told otherwise: the agreement between tallyd, tally-run, tallyctl and the shim.
//
// Header only, so that the client's side needs nothing of the server's.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace tally::control {

// The daemon of the machine, run by root or by a system user that owns the directory.
inline constexpr const char* kSystemRuntimeDir = "/run/tally";
inline constexpr const char* kClientSocketName = "tally.sock";
// Below the runtime directory: the clients' socket and nothing else, so that it can be mounted into containers, whose
// root is root to us. Beside the directory stands a link of the socket's name, where clients have always looked.
inline constexpr const char* kClientDirectoryName = "clients";
// Below it: a directory for each grant, with a socket of the usual name and nothing else.
inline constexpr const char* kGrantDirectoryName = "grants";
inline constexpr const char* kControlSocketName = "control.sock";
// For those who may see only what is theirs.
inline constexpr const char* kViewSocketName = "view.sock";
inline constexpr const char* kExecutorSocketName = "executors.sock";

// The runtime directory of a daemon that user `uid` starts for himself; root's is the machine's.
inline std::string DefaultRuntimeDir(uid_t uid) {
  if (uid == 0) return kSystemRuntimeDir;
  const char* xdg = std::getenv("XDG_RUNTIME_DIR");
  if (xdg != nullptr && xdg[0] == '/') return std::string(xdg) + "/tally";
  return "/tmp/tally-" + std::to_string(uid);
}

// The directory of the daemon whose clients connect to `socket`, the link or what it leads to.
inline std::string RuntimeDirOf(const std::string& socket) {
  const std::string directory = socket.substr(0, socket.rfind('/'));
  const std::string clients = std::string("/") + kClientDirectoryName;
  return directory.ends_with(clients) ? directory.substr(0, directory.size() - clients.size()) : directory;
}

// Where the daemon of `runtime_dir` has its clients' socket of this name.
inline std::string ClientSocketIn(const std::string& runtime_dir, const std::string& name) {
  return runtime_dir + "/" + kClientDirectoryName + "/" + name;
}

// Where the tenant of a grant connects. Its directory is what a container gets, as /run/tally.
inline std::string GrantSocketIn(const std::string& runtime_dir, const std::string& tenant) {
  return runtime_dir + "/" + kGrantDirectoryName + "/" + tenant + "/" + kClientSocketName;
}

inline std::string SystemSocket() { return std::string(kSystemRuntimeDir) + "/" + kClientSocketName; }
inline std::string DefaultSocket(uid_t uid) { return DefaultRuntimeDir(uid) + "/" + kClientSocketName; }

// Where a client looks: $TALLY_SOCKET, else the user's own daemon if its socket exists, else the machine's.
inline std::string FindSocket(uid_t uid) {
  if (const char* named = std::getenv("TALLY_SOCKET"); named != nullptr && named[0] != '\0') return named;
  const std::string own = DefaultSocket(uid);
  return ::access(own.c_str(), F_OK) == 0 ? own : SystemSocket();
}

// Where a program in any container looks, one after the other, until somebody answers: a socket may be there and its
// daemon gone.
inline std::vector<std::string> SocketsToTry() {
  if (const char* named = std::getenv("TALLY_SOCKET"); named != nullptr && named[0] != '\0') return {named};
  std::vector<std::string> paths;
  if (const char* xdg = std::getenv("XDG_RUNTIME_DIR"); xdg != nullptr && xdg[0] != '\0') {
    paths.push_back(std::string(xdg) + "/tally/" + kClientSocketName);
  }
  paths.push_back(SystemSocket());
  return paths;
}

}  // namespace tally::control
