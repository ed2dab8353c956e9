// The functions of the CUDA driver that a pipeline calls, from the libcuda.so.1 of the process: the program's own, or
// Tally's, whichever it has.
#pragma once

#include <cuda.h>

#include <expected>
#include <string>

namespace tally::pipelines {

struct Driver {
  decltype(&::cuCtxGetCurrent) ctx_get_current;
  decltype(&::cuCtxGetDevice) ctx_get_device;
  decltype(&::cuCtxPushCurrent_v2) ctx_push_current;
  decltype(&::cuCtxPopCurrent_v2) ctx_pop_current;
  decltype(&::cuDeviceGetAttribute) device_get_attribute;
  decltype(&::cuModuleLoadData) module_load_data;
  decltype(&::cuModuleUnload) module_unload;
  decltype(&::cuModuleGetFunction) module_get_function;
  decltype(&::cuFuncSetAttribute) func_set_attribute;
  decltype(&::cuLaunchKernelEx) launch_kernel_ex;
  decltype(&::cuTensorMapEncodeTiled) tensor_map_encode_tiled;
  decltype(&::cuGetErrorString) get_error_string;

  // "an illegal memory access was encountered (700)"
  std::string Describe(CUresult result) const;
};

// Found once, by the first call; any thread. Without a driver, or with one that lacks a function: why, as a sentence.
const std::expected<Driver, std::string>& TheDriver();

}  // namespace tally::pipelines
