#include "tests/gpu/gate_matrix/cuda_driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>

namespace tally::gate_matrix {
namespace {
void (*save_on_failure)(const std::string&) = nullptr;
}  // namespace

Driver driver;

void OpenDriver(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Die("cannot open " + path + ": " + dlerror());
#define X(name)                                                                 \
  driver.name = reinterpret_cast<decltype(driver.name)>(dlsym(library, #name)); \
  if (driver.name == nullptr) Die(path + " has no " #name);
  TALLY_GATE_MATRIX_FUNCTIONS(X)
#undef X
}

void OnFailure(void (*save)(const std::string&)) { save_on_failure = save; }

void Die(const std::string& what) {
  std::printf("FAIL %s\n", what.c_str());
  std::fflush(stdout);
  if (save_on_failure != nullptr) save_on_failure(what);
  _exit(3);
}

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  if (driver.cuGetErrorName != nullptr) driver.cuGetErrorName(result, &name);
  Die(std::string(what) + ": " + name);
}

void WaitUntil(Clock::time_point time) {
  while (Clock::now() < time) {
  }
}

}  // namespace tally::gate_matrix
