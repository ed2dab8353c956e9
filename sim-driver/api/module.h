// Modules, libraries and their kernels: loaded programs and where their variables live.
//
//   Library (one per cuLibraryLoad*, no context) -- per context, at first use --> Module (variables have addresses)
//   Kernel (CUkernel, of a library)              -- per context -------------->  Function (CUfunction, of a module)
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim-driver/api/context.h"
#include "sim-driver/api/handle_table.h"
#include "sim-driver/engine/program.h"

namespace tally::sim_driver {

// What cuFuncSetAttribute can change; a CUkernel shares its settings with the functions made from it.
struct KernelSettings {
  std::atomic<int> max_dynamic_shared_bytes{0};
  std::atomic<int> shared_carveout{-1};
  std::atomic<int> allows_non_portable_cluster{0};
  std::atomic<int> cluster_scheduling{0};
  std::array<std::atomic<int>, 3> required_cluster{};
  std::atomic<int> cache_config{CU_FUNC_CACHE_PREFER_NONE};
};

// A kernel of a program with its settings: what attributes and occupancy are computed from.
struct KernelCode {
  std::shared_ptr<const Program> program;
  uint32_t index = 0;
  std::shared_ptr<KernelSettings> settings;
  const Kernel& kernel() const { return program->kernels()[index]; }
};

struct Module;
struct Library;

struct Function {
  CUfunction handle = nullptr;
  KernelCode code;
  std::weak_ptr<Module> module;
};

struct LibraryKernel {
  CUkernel handle = nullptr;
  KernelCode code;
  std::weak_ptr<Library> library;
};

// Frees its variables' memory when the last user (a running launch) is gone.
struct Module {
  ~Module();
  CUmodule handle = nullptr;
  std::weak_ptr<Context> context;
  std::shared_ptr<const Program> program;
  std::vector<uint64_t> variable_addresses;
  std::vector<std::shared_ptr<Function>> functions;  // in the program's order
};

struct Library {
  CUlibrary handle = nullptr;
  std::shared_ptr<const Program> program;
  std::vector<std::shared_ptr<LibraryKernel>> kernels;  // in the program's order

  std::mutex mutex;
  std::unordered_map<uint64_t, std::shared_ptr<Module>> modules;  // by context id
};

HandleTable<CUmodule, Module>& Modules();
HandleTable<CUfunction, Function>& Functions();
HandleTable<CUlibrary, Library>& Libraries();
HandleTable<CUkernel, LibraryKernel>& LibraryKernels();

std::shared_ptr<Module> FindModule(CUmodule handle);
std::shared_ptr<Library> FindLibrary(CUlibrary handle);
std::shared_ptr<LibraryKernel> FindKernel(CUkernel handle);
// Takes a CUkernel in a CUfunction's place too, as launches and queries do: then the function of `context`.
std::shared_ptr<Function> FindFunction(CUfunction handle, const ContextPtr& context);
// The same where no context is needed.
KernelCode FindKernelCode(CUfunction handle);

// Gives every variable memory in the context and writes its first bytes. Fails with OUT_OF_MEMORY.
std::shared_ptr<Module> LoadModule(const ContextPtr& context, std::shared_ptr<const Program> program,
                                   const Library* library);
void UnloadModule(const std::shared_ptr<Module>& module);
void UnloadModulesOf(const Context& context);
std::shared_ptr<Library> LoadLibrary(std::shared_ptr<const Program> program);
void UnloadLibrary(const std::shared_ptr<Library>& library);
std::shared_ptr<Module> ModuleOfLibrary(const std::shared_ptr<Library>& library, const ContextPtr& context);

}  // namespace tally::sim_driver
