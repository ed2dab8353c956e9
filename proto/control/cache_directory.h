// Where a tallyd of user `uid` keeps compiled kernels unless told otherwise; empty: nowhere.
#pragma once

#include <sys/types.h>

#include <cstdlib>
#include <string>

namespace tally::control {

inline std::string DefaultCacheDirectory(uid_t uid) {
  const auto environment = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr && value[0] == '/' ? value : "");
  };
  if (const std::string given = environment("CACHE_DIRECTORY"); !given.empty()) return given;  // systemd
  if (uid == 0) return "/var/cache/tally";
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) return cache + "/tally";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/tally";
  return "";
}

}  // namespace tally::control
