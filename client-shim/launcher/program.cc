#include "client-shim/launcher/program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "client-shim/launcher/loader.h"

namespace tally::launcher {
namespace {

bool IsRunnableFile(const std::string& path) {
  struct stat state {};
  return ::stat(path.c_str(), &state) == 0 && S_ISREG(state.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

Program Unrunnable(int exit_status, std::string sentence) {
  Program program;
  program.exit_status = exit_status;
  program.error = std::move(sentence);
  return program;
}

// For programs that get rights from their file, the loader ignores LD_LIBRARY_PATH and LD_PRELOAD.
bool GainsRights(const std::string& path) {
  struct stat state {};
  if (::stat(path.c_str(), &state) != 0) return false;
  if ((state.st_mode & S_ISUID) != 0 && state.st_uid != ::geteuid()) return true;
  if ((state.st_mode & S_ISGID) != 0 && state.st_gid != ::getegid()) return true;
  return ::geteuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

std::string FindInPath(const std::string& name) {
  const char* variable = std::getenv("PATH");
  const std::string directories = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (size_t start = 0; start <= directories.size();) {
    const size_t end = std::min(directories.find(':', start), directories.size());
    const std::string directory = end == start ? "." : directories.substr(start, end - start);
    if (IsRunnableFile(directory + "/" + name)) return directory + "/" + name;
    start = end + 1;
  }
  return "";
}

// What runs the script `path`: the program of its #! line, or NAME where that is `env NAME`. Empty: no script.
std::string FindInterpreter(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  if (file.get() != '#' || file.get() != '!' || !std::getline(file, line)) return "";
  std::istringstream words(line);
  std::string interpreter;
  words >> interpreter;
  if (!interpreter.ends_with("/env")) return interpreter;
  for (std::string word; words >> word;) {
    const bool is_name = word.front() != '-' && word.find('=') == std::string::npos;
    if (const std::string found = is_name ? FindInPath(word) : ""; !found.empty()) return found;
  }
  return interpreter;
}

bool IsTallyRun(const std::string& path) {
  struct stat own {};
  struct stat other {};
  return ::stat("/proc/self/exe", &own) == 0 && ::stat(path.c_str(), &other) == 0 && own.st_dev == other.st_dev &&
         own.st_ino == other.st_ino;
}

Program Inspect(const std::string& path) {
  Program program;
  program.path = path;
  program.image = path;
  // The kernel follows scripts whose interpreters are scripts this often.
  for (int depth = 0; depth < 5; ++depth) {
    const std::string interpreter = FindInterpreter(program.image);
    if (interpreter.empty()) break;
    program.image = interpreter;
  }
  if (IsTallyRun(program.image)) return program;  // it has no loader, and looks at the program itself
  auto loader = FindLoader(program.image);
  if (!loader) return Unrunnable(1, loader.error().message());
  program.loader = *std::move(loader);
  if (GainsRights(path)) {
    program.warning = fmt::format(
        "'{}' has a set-user-id bit or file capabilities, so the loader keeps Tally's driver library from it", path);
  }
  return program;
}

}  // namespace

Program FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    struct stat state {};
    if (::stat(name.c_str(), &state) != 0) {
      return Unrunnable(errno == ENOENT || errno == ENOTDIR ? 127 : 126,
                        fmt::format("cannot run '{}': {}", name, std::strerror(errno)));
    }
    if (S_ISDIR(state.st_mode)) return Unrunnable(126, fmt::format("cannot run '{}': it is a directory", name));
    if (!IsRunnableFile(name)) {
      return Unrunnable(126, fmt::format("cannot run '{}': it is not an executable file (chmod +x?)", name));
    }
    return Inspect(name);
  }
  if (const std::string path = FindInPath(name); !path.empty()) return Inspect(path);
  return Unrunnable(127, fmt::format("there is no program '{}' in PATH{}", name,
                                     IsRunnableFile("./" + name) ? fmt::format(" (did you mean ./{}?)", name) : ""));
}

}  // namespace tally::launcher
