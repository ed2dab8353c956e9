// For programs about several devices: how many there are. With one they leave out what needs two; PROGRAM_NEEDS_DEVICES
// in the environment says how many there must be.
#pragma once

#include <cstdlib>

#include "tests/programs/check.h"

namespace check {

inline int CountDevices() {
  int count = 0;
  CHECK_CUDA(cudaGetDeviceCount(&count));
  const char* const needed = getenv("PROGRAM_NEEDS_DEVICES");
  if (needed != nullptr && count < atoi(needed)) Fail("%d device(s), %s needed", count, needed);
  return count;
}

}  // namespace check
