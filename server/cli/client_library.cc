#include "server/cli/client_library.h"

#include <fmt/format.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace tally::cli {

std::string ProgramDirectory() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  const std::string full(path, size > 0 ? static_cast<size_t>(size) : 0);
  return full.substr(0, full.find('/') == std::string::npos ? 0 : full.rfind('/'));
}

Result<std::string> FindClientLibrary() {
  const char* named = std::getenv("TALLY_CLIENT_DIR");
  const std::string directory =
      named != nullptr && named[0] != '\0' ? std::string(named) : ProgramDirectory() + "/../lib/tally/client";
  char resolved[PATH_MAX];
  if (::realpath((directory + "/libcuda.so.1").c_str(), resolved) != nullptr) return std::string(resolved);
  return Error(StatusCode::kNotFound, fmt::format("Tally's libcuda.so.1 is not in '{}'", directory));
}

}  // namespace tally::cli
