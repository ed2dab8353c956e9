#include "base/installed_files.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace tally {

std::string ProgramDirectory() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  if (size <= 0) return ".";
  const std::string full(path, static_cast<size_t>(size));
  return full.substr(0, full.rfind('/'));
}

std::string ClientDirectory() {
  if (const char* named = std::getenv("TALLY_CLIENT_DIR"); named != nullptr && named[0] != '\0') return named;
  const std::string programs = ProgramDirectory();
  return programs.substr(0, programs.rfind('/')) + "/lib/tally/client";
}

}  // namespace tally
