// Pages of the test's own, as a program has them that registers memory.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "client-shim/state/own_mappings.h"

namespace tally::client_shim {

inline constexpr size_t kTestPages = 9;
inline constexpr size_t kTestBytes = kTestPages * kPageBytes;

// kTestBytes that nobody shares; null if there is no room.
inline char* MapPrivate() {
  void* mapped = ::mmap(nullptr, kTestBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped != MAP_FAILED ? static_cast<char*>(mapped) : nullptr;
}
inline uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

}  // namespace tally::client_shim
