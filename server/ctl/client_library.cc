#include "server/ctl/client_library.h"

#include <fmt/format.h>

#include <climits>
#include <cstdlib>

#include "base/installed_files.h"

namespace tally::cli {

Result<std::string> FindClientLibrary() {
  const std::string directory = ClientDirectory();
  char resolved[PATH_MAX];
  if (::realpath((directory + "/libcuda.so.1").c_str(), resolved) != nullptr) return std::string(resolved);
  return Error(StatusCode::kNotFound, fmt::format("Tally's libcuda.so.1 is not in '{}'", directory));
}

}  // namespace tally::cli
