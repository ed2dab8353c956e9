#include "server/executor/session/loaded_code.h"

namespace tally::server {

void LoadedCode::Unload(LoadedImage* image) {
  before_unload();
  // A library's module goes with it.
  for (size_t i = 0; i < loaded.size(); ++i) {
    if (loaded[i]->library_image == image) {
      Unload(loaded[i].get());
      i = static_cast<size_t>(-1);
    }
  }
  for (const auto& kernel : image->kernels) {
    AwaitVariants(*kernel);
    handles_[kernel->function != nullptr ? shm::HandleKind::kFunction : shm::HandleKind::kKernel].Remove(
        kernel->handle);
    std::erase_if(kernel_of, [&](const auto& entry) { return entry.second == kernel.get(); });
  }
  memory_.RemoveOwned(image);
  handles_[image->is_library ? shm::HandleKind::kLibrary : shm::HandleKind::kModule].Remove(image->handle);
  if (image->is_library) {
    driver_.cuLibraryUnload(image->library);
  } else if (!image->is_borrowed) {
    driver_.cuModuleUnload(image->module);
  }
  if (image->bytes) images.Return(*image->bytes);
  std::erase_if(loaded, [&](const auto& owned) { return owned.get() == image; });
}

void LoadedCode::AwaitVariants(Kernel& kernel) {
  for (const auto& [device, on_device] : kernel.on_device) {
    const VariantDevice* gates_at = kernel.gate ? variants_->FindDevice(device) : nullptr;
    if (gates_at != nullptr && gates_at->gated != nullptr) {
      CUfunction function = kernel.function;
      driver_.cuCtxSetCurrent(gates_at->context);
      if (function != nullptr || driver_.cuKernelGetFunction(&function, kernel.kernel) == CUDA_SUCCESS) {
        gates_at->gated->AwaitFunction(function);
      }
    }
    if (on_device.variants == nullptr || !on_device.variants->is_loaded()) continue;
    const VariantDevice* variant_device = variants_->FindDevice(device);
    const CUfunction persistent_blocks = on_device.variants->persistent_blocks().function;
    if (variant_device->persistent_blocks != nullptr && persistent_blocks != nullptr)
      variant_device->persistent_blocks->AwaitFunction(persistent_blocks);
    const CUfunction gated = on_device.variants->gated().function;
    if (variant_device->gated != nullptr && gated != nullptr) variant_device->gated->AwaitFunction(gated);
  }
  kernel.on_device.clear();
  kernel.accesses.reset();  // the addresses of its variables go, too
}

void LoadedCode::ReloadLibraries() {
  for (const HandleTable::Entry& entry : handles_[shm::HandleKind::kLibrary].Entries()) {
    Reload(*static_cast<LoadedImage*>(entry.value));
  }
}

void LoadedCode::Reload(LoadedImage& library) {
  CUlibrary fresh = nullptr;
  if (LoadLibraryData(driver_, library.gated != nullptr ? library.gated->image.data() : library.bytes->pointer(),
                      library.jit_options.data(), library.jit_values.data(),
                      static_cast<unsigned int>(library.jit_options.size()), &fresh) != CUDA_SUCCESS) {
    return;  // the old one goes on, with what its variables hold
  }
  before_unload();
  for (size_t i = 0; i < loaded.size(); ++i) {
    if (loaded[i]->library_image != &library) continue;
    Unload(loaded[i].get());
    i = static_cast<size_t>(-1);
  }
  for (const auto& kernel : library.kernels) {
    if (kernel->function != nullptr) handles_[shm::HandleKind::kFunction].Remove(kernel->handle);
    std::erase_if(kernel_of, [&](const auto& entry) { return entry.second == kernel.get(); });
  }
  for (const auto& kernel : library.kernels) AwaitVariants(*kernel);
  std::erase_if(library.kernels, [](const auto& kernel) { return kernel->function != nullptr; });
  for (const auto& [name, kernel] : library.by_name) {
    kernel->function_of_kernel = nullptr;
    if (driver_.cuLibraryGetKernel(&kernel->kernel, fresh, name.c_str()) == CUDA_SUCCESS) {
      kernel_of[kernel->kernel] = kernel;
    }
  }
  memory_.RemoveOwned(&library);
  driver_.cuLibraryUnload(library.library);
  library.library = fresh;
}

void LoadedCode::DestroyLinks(uint32_t context) {
  handles_.RemoveEach(shm::HandleKind::kLinkState, context, [&](const HandleTable::Entry& entry) {
    const std::unique_ptr<LinkState> link(static_cast<LinkState*>(entry.value));
    driver_.cuLinkDestroy(link->link);
    for (const auto& input : link->inputs) images.Return(*input);
  });
}

void LoadedCode::UnloadAll(uint32_t context) {
  const auto unload = [&](const HandleTable::Entry& entry) { Unload(static_cast<LoadedImage*>(entry.value)); };
  handles_.RemoveEach(shm::HandleKind::kModule, context, unload);
  if (context == shm::kNoContext) handles_.RemoveEach(shm::HandleKind::kLibrary, context, unload);
}

}  // namespace tally::server
