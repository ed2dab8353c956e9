// CHECK for broken invariants of our own, always on. Never for anything that a peer, a file or the environment can
// cause: that is a Status.
//
// Code that runs in a client's process (client-shim) must not use CHECK: it turns doubt into an error code instead.
#pragma once

namespace tally {
[[noreturn]] void CheckFailed(const char* expression, const char* file, int line);
}  // namespace tally

#define CHECK(condition)                                    \
  do {                                                      \
    if (!(condition)) [[unlikely]]                          \
      ::tally::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)
