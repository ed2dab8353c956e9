#include "sim-driver/api/module.h"

#include <algorithm>
#include <cstring>

#include "sim-driver/api/device.h"
#include "sim-driver/api/error.h"
#include "sim-driver/api/memory.h"

namespace tally::sim_driver {

HandleTable<CUmodule, Module>& Modules() {
  static auto& table = *new HandleTable<CUmodule, Module>("modules");
  return table;
}
HandleTable<CUfunction, Function>& Functions() {
  static auto& table = *new HandleTable<CUfunction, Function>("functions");
  return table;
}
HandleTable<CUlibrary, Library>& Libraries() {
  static auto& table = *new HandleTable<CUlibrary, Library>("libraries");
  return table;
}
HandleTable<CUkernel, LibraryKernel>& LibraryKernels() {
  static auto& table = *new HandleTable<CUkernel, LibraryKernel>("kernels");
  return table;
}

namespace {

std::shared_ptr<KernelSettings> DefaultSettings(const Kernel& kernel) {
  auto settings = std::make_shared<KernelSettings>();
  const int left = static_cast<int>(MachineLimits::kSharedBytesPerBlock) - static_cast<int>(kernel.static_shared_bytes);
  settings->max_dynamic_shared_bytes = std::max(left, 0);
  for (size_t i = 0; i < 3; ++i) settings->required_cluster[i] = static_cast<int>(kernel.required_cluster[i]);
  return settings;
}

std::shared_ptr<Function> FunctionOf(const std::shared_ptr<LibraryKernel>& kernel, const ContextPtr& context) {
  const std::shared_ptr<Library> library = kernel->library.lock();
  Require(library != nullptr, CUDA_ERROR_INVALID_HANDLE);
  return ModuleOfLibrary(library, context)->functions[kernel->code.index];
}

}  // namespace

std::shared_ptr<Module> FindModule(CUmodule handle) {
  auto module = Modules().Find(handle);
  Require(module != nullptr, CUDA_ERROR_INVALID_HANDLE);
  return module;
}

std::shared_ptr<Library> FindLibrary(CUlibrary handle) {
  auto library = Libraries().Find(handle);
  Require(library != nullptr, CUDA_ERROR_INVALID_HANDLE);
  return library;
}

std::shared_ptr<LibraryKernel> FindKernel(CUkernel handle) {
  auto kernel = LibraryKernels().Find(handle);
  Require(kernel != nullptr, CUDA_ERROR_INVALID_HANDLE);
  return kernel;
}

std::shared_ptr<Function> FindFunction(CUfunction handle, const ContextPtr& context) {
  if (auto function = Functions().Find(handle)) return function;
  return FunctionOf(FindKernel(reinterpret_cast<CUkernel>(handle)), context);
}

KernelCode FindKernelCode(CUfunction handle) {
  if (const auto function = Functions().Find(handle)) return function->code;
  return FindKernel(reinterpret_cast<CUkernel>(handle))->code;
}

Module::~Module() {
  for (const uint64_t address : variable_addresses) {
    if (address != 0) ReleaseMemory(address);
  }
}

std::shared_ptr<Module> LoadModule(const ContextPtr& context, std::shared_ptr<const Program> program,
                                   const Library* library) {
  auto module = std::make_shared<Module>();
  module->context = context;
  module->program = std::move(program);
  const std::vector<Variable>& variables = module->program->variables();
  for (const Variable& variable : variables) {
    MemoryRegion shape;
    // A zero-sized array still has an address.
    shape.num_bytes = std::max<uint64_t>(variable.size_bytes, 1);
    shape.kind = variable.is_managed ? MemoryKind::kManaged : MemoryKind::kDevice;
    shape.flags = variable.is_managed ? CU_MEM_ATTACH_GLOBAL : 0;
    shape.is_module_owned = true;
    module->variable_addresses.push_back(AcquireMemory(*context, shape, std::max(variable.align, 1U)));
  }
  for (uint32_t i = 0; i < variables.size(); ++i) {
    const std::vector<std::byte> bytes = module->program->InitialBytes(i, module->variable_addresses);
    std::memcpy(reinterpret_cast<void*>(module->variable_addresses[i]), bytes.data(), bytes.size());
  }
  const uint64_t value = NextHandleValue();
  module->handle = reinterpret_cast<CUmodule>(value);
  for (uint32_t i = 0; i < module->program->kernels().size(); ++i) {
    auto function = std::make_shared<Function>();
    function->code = library != nullptr
                         ? library->kernels[i]->code
                         : KernelCode{module->program, i, DefaultSettings(module->program->kernels()[i])};
    function->module = module;
    const uint64_t function_value = NextHandleValue();
    function->handle = reinterpret_cast<CUfunction>(function_value);
    Functions().InsertAt(function_value, function);
    module->functions.push_back(std::move(function));
  }
  Modules().InsertAt(value, module);
  return module;
}

void UnloadModule(const std::shared_ptr<Module>& module) {
  Modules().Remove(module->handle);
  for (const auto& function : module->functions) Functions().Remove(function->handle);
}

void UnloadModulesOf(const Context& context) {
  for (const auto& module :
       Modules().RemoveIf([&context](const Module& candidate) { return candidate.context.lock().get() == &context; })) {
    UnloadModule(module);
  }
}

std::shared_ptr<Library> LoadLibrary(std::shared_ptr<const Program> program) {
  auto library = std::make_shared<Library>();
  library->program = std::move(program);
  for (uint32_t i = 0; i < library->program->kernels().size(); ++i) {
    auto kernel = std::make_shared<LibraryKernel>();
    kernel->code = {library->program, i, DefaultSettings(library->program->kernels()[i])};
    kernel->library = library;
    const uint64_t value = NextHandleValue();
    kernel->handle = reinterpret_cast<CUkernel>(value);
    LibraryKernels().InsertAt(value, kernel);
    library->kernels.push_back(std::move(kernel));
  }
  const uint64_t value = NextHandleValue();
  library->handle = reinterpret_cast<CUlibrary>(value);
  Libraries().InsertAt(value, library);
  return library;
}

void UnloadLibrary(const std::shared_ptr<Library>& library) {
  Libraries().Remove(library->handle);
  for (const auto& kernel : library->kernels) LibraryKernels().Remove(kernel->handle);
  const std::lock_guard lock(library->mutex);
  for (const auto& [context, module] : library->modules) UnloadModule(module);
  library->modules.clear();
}

std::shared_ptr<Module> ModuleOfLibrary(const std::shared_ptr<Library>& library, const ContextPtr& context) {
  const std::lock_guard lock(library->mutex);
  std::erase_if(library->modules, [](const auto& entry) {
    const ContextPtr owner = entry.second->context.lock();
    return !owner || owner->is_destroyed();
  });
  std::shared_ptr<Module>& module = library->modules[context->id()];
  if (!module) {
    try {
      module = LoadModule(context, library->program, library.get());
    } catch (...) {
      library->modules.erase(context->id());
      throw;
    }
  }
  return module;
}

}  // namespace tally::sim_driver
