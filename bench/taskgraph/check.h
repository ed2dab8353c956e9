// What fails ends the program, with a sentence.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace taskgraph {

[[noreturn]] inline void Fail(const char* what, const char* why) {
  std::fprintf(stderr, "taskgraph: %s: %s\n", what, why);
  std::exit(1);
}
inline void Check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) Fail(what, cudaGetErrorString(result));
}
// A status of a library, of which 0 is success.
inline void Require(int status, const char* what) {
  if (status != 0) Fail(what, ("status " + std::to_string(status)).c_str());
}

}  // namespace taskgraph
