// What fails ends the program, with a sentence.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace taskgraph {

[[noreturn]] inline void Fail(const char* what, const char* why) {
  std::fprintf(stderr, "taskgraph: %s: %s\n", what, why);
  std::exit(1);
}
inline void Check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) Fail(what, cudaGetErrorString(result));
}

}  // namespace taskgraph
