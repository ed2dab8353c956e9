#include "client-shim/nvml/real_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string>

#include "client-shim/nvml/nvml_abi.h"
#include "proto/driver/driver_directories.h"

extern "C" {
extern const char* const tally_nvml_names[];
extern void* tally_nvml_addresses[];
// Which of the two a library is.
extern __attribute__((visibility("default"))) const int tally_nvml_marker;
const int tally_nvml_marker = 1;
}

namespace tally::nvml {
namespace {

std::mutex g_mutex;
bool g_was_looked_for = false;  // guarded by g_mutex, as the next one
void* g_library = nullptr;

void* OpenIn(const std::string& directory) {
  void* const library = ::dlopen((directory + "/libnvidia-ml.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr || ::dlsym(library, "tally_nvml_marker") == nullptr) return library;
  ::dlclose(library);
  return nullptr;
}

void* Library() {
  const std::lock_guard lock(g_mutex);
  if (g_was_looked_for) return g_library;
  g_was_looked_for = true;
  if (const char* directory = std::getenv("TALLY_NVML_DIR"); directory != nullptr) return g_library = OpenIn(directory);
  for (const char* directory : kDriverDirectories) {
    g_library = OpenIn(directory);
    if (g_library != nullptr) break;
  }
  return g_library;
}

uint32_t AnswerNotFound() { return kFunctionNotFound; }

}  // namespace

void* RealFunction(const char* name) noexcept try {
  void* const library = Library();
  return library != nullptr ? ::dlsym(library, name) : nullptr;
} catch (...) {
  return nullptr;  // out of memory
}

}  // namespace tally::nvml

// Of the trampolines: where the function of this number is. Two threads may look it up at once and find the same.
extern "C" __attribute__((visibility("hidden"))) void* tally_nvml_resolve(uint32_t index) {
  void* function = tally::nvml::RealFunction(tally_nvml_names[index]);
  if (function == nullptr) function = reinterpret_cast<void*>(&tally::nvml::AnswerNotFound);
  __atomic_store_n(&tally_nvml_addresses[index], function, __ATOMIC_RELAXED);
  return function;
}
