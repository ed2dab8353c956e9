#include "cubin-transforms/add_gates.h"
#include "images/codecs.h"
#include "images/fat_container.h"

namespace tally::cubin_transforms {

Result<std::vector<std::byte>> CubinForDevice(std::span<const std::byte> image, uint32_t capability) {
  using images::FatEntry;
  switch (images::KindOfImage(image)) {
    case images::ImageKind::kCubin:
      return std::vector<std::byte>(image.begin(), image.end());
    case images::ImageKind::kFatContainer:
      break;
    default:
      return Error(StatusCode::kNotFound, "the image has no machine code");
  }
  const Result<std::vector<FatEntry>> entries = images::ReadFatContainer(image);
  if (!entries) return std::unexpected(entries.error());
  const FatEntry* best = nullptr;
  bool is_only_one = true;
  for (const FatEntry& entry : *entries) {
    // Of its major version, and no newer than it.
    if (entry.kind != images::FatEntryKind::kCubin || entry.arch / 10 != capability / 10 || entry.arch > capability)
      continue;
    // sm_90a code runs on 9.0 alone.
    if ((entry.flags & images::fat_flag::kArchSpecific) != 0 && entry.arch != capability) continue;
    if (best != nullptr && entry.arch < best->arch) continue;
    is_only_one = best == nullptr || entry.arch > best->arch;
    best = &entry;
  }
  if (best == nullptr) return Error(StatusCode::kNotFound, "the image has no machine code for the device");
  if (!is_only_one) return Error(StatusCode::kUnimplemented, "the image has several cubins for the device");
  return images::DecompressEntry(*best);
}

}  // namespace tally::cubin_transforms
