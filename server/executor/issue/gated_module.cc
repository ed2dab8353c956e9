#include "server/executor/issue/gated_module.h"

#include <span>

#include "base/check.h"
#include "server/executor/issue/gated_code.h"

namespace tally::server {

GatedModule::~GatedModule() {
  if (module_ != nullptr) driver_.cuModuleUnload(module_);
}

CUresult GatedModule::Load(std::string_view text) {
  const auto gated = GateText(std::as_bytes(std::span(text)), 75);
  CHECK(gated && gated->refusals.empty());
  CUresult result = driver_.cuModuleLoadDataEx(&module_, gated->image.data(), 0, nullptr, nullptr);
  for (const auto& [name, gate] : gated->gates) {
    Kernel kernel{nullptr, gate.hidden_offset};
    if (result == CUDA_SUCCESS) result = driver_.cuModuleGetFunction(&kernel.function, module_, name.c_str());
    // Now: loading it at its first launch might wait for the context.
    if (result == CUDA_SUCCESS && driver_.cuFuncLoad != nullptr) result = driver_.cuFuncLoad(kernel.function);
    if (result == CUDA_SUCCESS) kernels_[name] = kernel;
  }
  return result;
}

GatedModule::Kernel GatedModule::Find(const std::string& name) const {
  const auto kernel = kernels_.find(name);
  return kernel == kernels_.end() ? Kernel() : kernel->second;
}

}  // namespace tally::server
