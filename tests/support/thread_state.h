// What other threads of a test are doing.
#pragma once

#include <sys/types.h>

#include <fstream>
#include <iterator>
#include <string>

namespace tally {

// Is it in the kernel, waiting for something? Of this process, by its gettid().
inline bool IsAsleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string stat(std::istreambuf_iterator<char>(file), {});
  return stat.find(") S ") != std::string::npos;
}

}  // namespace tally
