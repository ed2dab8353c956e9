#include "pipelines/runtime/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tally::pipelines {
namespace {

std::expected<Driver, std::string> Find() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // stays loaded: the program has it anyway
  if (library == nullptr) return std::unexpected(fmt::format("no CUDA driver: {}", ::dlerror()));
  Driver driver{};
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) missing = name;
  };
  find(driver.ctx_get_current, "cuCtxGetCurrent");
  find(driver.ctx_get_device, "cuCtxGetDevice");
  find(driver.ctx_push_current, "cuCtxPushCurrent_v2");
  find(driver.ctx_pop_current, "cuCtxPopCurrent_v2");
  find(driver.device_get_attribute, "cuDeviceGetAttribute");
  find(driver.module_load_data, "cuModuleLoadData");
  find(driver.module_unload, "cuModuleUnload");
  find(driver.module_get_function, "cuModuleGetFunction");
  find(driver.func_set_attribute, "cuFuncSetAttribute");
  find(driver.launch_kernel_ex, "cuLaunchKernelEx");
  find(driver.tensor_map_encode_tiled, "cuTensorMapEncodeTiled");
  find(driver.get_error_string, "cuGetErrorString");
  if (missing != nullptr) return std::unexpected(fmt::format("the CUDA driver is too old: it has no {}", missing));
  return driver;
}

}  // namespace

std::string Driver::Describe(CUresult result) const {
  const char* text = nullptr;
  if (get_error_string(result, &text) != CUDA_SUCCESS || text == nullptr) text = "unknown error";
  return fmt::format("{} ({})", text, static_cast<int>(result));
}

const std::expected<Driver, std::string>& TheDriver() {
  static const std::expected<Driver, std::string> driver = Find();
  return driver;
}

}  // namespace tally::pipelines
