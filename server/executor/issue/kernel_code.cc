#include "server/executor/issue/kernel_code.h"

#include <span>

namespace tally::server {

ImageParts PartsOf(const ImageBytes& image) {
  if (image.wrapper == nullptr) return {image.bytes};
  // A container knows its size, so the rest of the bytes does no harm.
  const std::span<const std::byte> all = image.bytes;
  const auto from = [&](const void* part) {
    return all.subspan(static_cast<size_t>(static_cast<const std::byte*>(part) - all.data()));
  };
  ImageParts parts = {from(image.wrapper->first)};
  for (const void* part : image.prelinked) {
    if (part != nullptr) parts.push_back(from(part));
  }
  return parts;
}

const LoadedImage& OwnerOf(const Kernel& kernel) {
  return kernel.image->library_image != nullptr ? *kernel.image->library_image : *kernel.image;
}

std::string NameOf(const DriverTable& driver, const Kernel& kernel) {
  const char* name = nullptr;
  if (kernel.function != nullptr) {
    if (driver.cuFuncGetName != nullptr) driver.cuFuncGetName(&name, kernel.function);
  } else {
    if (driver.cuKernelGetName != nullptr) driver.cuKernelGetName(&name, kernel.kernel);
  }
  return name != nullptr ? name : "";
}

VariablePlace VariableOf(const DriverTable& driver, const LoadedImage& image, const std::string& name) {
  VariablePlace place;
  const CUresult result =
      image.is_library ? driver.cuLibraryGetGlobal(&place.address, &place.size_bytes, image.library, name.c_str())
                       : driver.cuModuleGetGlobal_v2(&place.address, &place.size_bytes, image.module, name.c_str());
  return result == CUDA_SUCCESS ? place : VariablePlace{};
}

}  // namespace tally::server
