#include "server/executor/issue/variant_module.h"

#include <algorithm>
#include <vector>

#include "base/log.h"
#include "proto/device/gate_abi.h"
#include "proto/device/variant_abi.h"

namespace tally::server {
namespace {

// Static and dynamic together may have 48 KiB; what a kernel has statically is not known here, so ask early.
constexpr uint32_t kDefaultDynamicSharedBytes = 16u << 10;

}  // namespace

VariantModule::~VariantModule() {
  if (slices_.module == nullptr && persistent_blocks_.module == nullptr && gated_.module == nullptr) return;
  CUcontext before = nullptr;
  driver_.cuCtxGetCurrent(&before);
  driver_.cuCtxSetCurrent(context_);
  for (const Form& form : {slices_, persistent_blocks_, gated_}) {
    if (form.module != nullptr) driver_.cuModuleUnload(form.module);
  }
  driver_.cuCtxSetCurrent(before);
}

void VariantModule::Load(size_t num_parameters) {
  driver_.cuCtxSetCurrent(context_);
  LoadForm(variants_->slices, num_parameters, sizeof(device::SliceParameters), &slices_);
  LoadForm(variants_->persistent_blocks, num_parameters, sizeof(device::PersistentParameters), &persistent_blocks_);
  LoadForm(variants_->gated, num_parameters, sizeof(device::GateParameters), &gated_);
  is_loaded_.store(true, std::memory_order_release);
}

void VariantModule::LoadForm(const CompiledForm& compiled, size_t num_parameters, size_t hidden_bytes, Form* form) {
  if (!compiled.exists()) return;
  CUresult result = driver_.cuModuleLoadDataEx(&form->module, compiled.image.data(), 0, nullptr, nullptr);
  if (result == CUDA_SUCCESS) {
    result = driver_.cuModuleGetFunction(&form->function, form->module, compiled.entry.c_str());
  }
  if (result == CUDA_SUCCESS && driver_.cuFuncLoad != nullptr) result = driver_.cuFuncLoad(form->function);
  // What was appended must be the last parameter and of the size that we fill in, or the code is not what we think.
  size_t size_bytes = 0;
  if (result == CUDA_SUCCESS) {
    result = driver_.cuFuncGetParamInfo(form->function, num_parameters, &form->hidden_offset, &size_bytes);
  }
  form->extra_shared_bytes = compiled.extra_shared_bytes;
  form->needs_warp_rows = compiled.needs_warp_rows;
  form->waits_for_blocks = compiled.waits_for_blocks;
  form->gates_clusters = compiled.gates_clusters;
  if (result == CUDA_SUCCESS && size_bytes == hidden_bytes) return;
  LOG_WARNING("variant {}: {} (hidden parameter of {} bytes)", compiled.entry, CudaErrorName(driver_, result),
              size_bytes);
  form->function = nullptr;
}

bool VariantModule::Prepare(Form& form, const LaunchShape& shape) {
  if (form.function == nullptr) return false;
  const bool has_warp_rows = shape.block[0] % 32 == 0 || (shape.block[1] == 1 && shape.block[2] == 1);
  if (form.needs_warp_rows && !has_warp_rows) return false;
  const uint32_t shared_bytes = shape.shared_bytes + form.extra_shared_bytes;
  if (shared_bytes <= std::max(form.shared_bytes, kDefaultDynamicSharedBytes)) return true;
  if (driver_.cuFuncSetAttribute(form.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                 static_cast<int>(shared_bytes)) != CUDA_SUCCESS) {
    return false;
  }
  form.shared_bytes = shared_bytes;
  return true;
}

void VariantModule::Bind(const std::function<CUdeviceptr(const std::string&)>& address_of) {
  is_bound_ = true;
  BindForm(variants_->slices, address_of, &slices_);
  BindForm(variants_->persistent_blocks, address_of, &persistent_blocks_);
  BindForm(variants_->gated, address_of, &gated_);
}

void VariantModule::BindForm(const CompiledForm& compiled,
                             const std::function<CUdeviceptr(const std::string&)>& address_of, Form* form) {
  if (form->function == nullptr || compiled.imports.empty()) return;
  std::vector<CUdeviceptr> addresses;
  for (const std::string& name : compiled.imports) addresses.push_back(address_of(name));
  CUdeviceptr table = 0;
  size_t table_bytes = 0;
  const bool is_complete = std::find(addresses.begin(), addresses.end(), CUdeviceptr{0}) == addresses.end();
  if (!is_complete ||
      driver_.cuModuleGetGlobal_v2(&table, &table_bytes, form->module, compiled.import_table.c_str()) != CUDA_SUCCESS ||
      table_bytes < addresses.size() * sizeof(CUdeviceptr) ||
      driver_.cuMemcpyHtoD_v2(table, addresses.data(), addresses.size() * sizeof(CUdeviceptr)) != CUDA_SUCCESS) {
    LOG_WARNING("variant {}: its variables could not be bound to the program's", compiled.entry);
    form->function = nullptr;
  }
}

}  // namespace tally::server
