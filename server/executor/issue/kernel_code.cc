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

}  // namespace tally::server
