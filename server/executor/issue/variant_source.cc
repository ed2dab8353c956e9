#include "server/executor/issue/variant_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "images/codecs.h"
#include "images/fat_container.h"
#include "images/image_kind.h"
#include "ptx-transforms/transform.h"

namespace tally::server {
namespace {

using images::FatEntry;
using images::FatEntryKind;

// Entries of all containers that could be tried, the newest architecture first.
std::vector<FatEntry> PtxEntries(const ImageParts& image, uint32_t arch) {
  std::vector<FatEntry> result;
  for (const std::span<const std::byte> part : image) {
    if (images::KindOfImage(part) != images::ImageKind::kFatContainer) continue;
    const auto entries = images::ReadFatContainer(part);
    if (!entries) continue;
    for (const FatEntry& entry : *entries) {
      if (entry.kind == FatEntryKind::kPtx && entry.arch <= arch) result.push_back(entry);
    }
  }
  std::stable_sort(result.begin(), result.end(), [](const FatEntry& a, const FatEntry& b) { return a.arch > b.arch; });
  return result;
}

// A name and a parenthesis are enough here: the parser has the last word.
bool Mentions(std::string_view ptx, const std::string& kernel) {
  for (size_t at = ptx.find(kernel); at != std::string_view::npos; at = ptx.find(kernel, at + 1)) {
    const size_t line = ptx.rfind(".entry", at);
    if (line != std::string_view::npos &&
        ptx.substr(line, at - line).find_first_of(";{}()") == std::string_view::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool HasPtx(const ImageParts& image, uint32_t arch) {
  const bool is_text = std::any_of(image.begin(), image.end(), [](std::span<const std::byte> part) {
    return images::KindOfImage(part) == images::ImageKind::kPtxText;
  });
  return is_text || !PtxEntries(image, arch).empty();
}

Result<std::string> NewestPtx(const ImageParts& image, uint32_t arch) {
  for (const std::span<const std::byte> part : image) {
    if (images::KindOfImage(part) != images::ImageKind::kPtxText) continue;
    const std::string_view all(reinterpret_cast<const char*>(part.data()), part.size());
    return std::string(all.substr(0, all.find('\0')));
  }
  const std::vector<FatEntry> entries = PtxEntries(image, arch);
  if (entries.empty()) return Error(StatusCode::kNotFound, "it holds no PTX");
  if (entries.size() > 1 && entries[1].arch == entries[0].arch) {
    return Error(StatusCode::kUnimplemented, "it is linked from several texts");
  }
  return images::DecompressPtx(entries.front());
}

Result<std::string> PtxOfKernel(const ImageParts& image, const std::string& kernel, uint32_t arch) {
  for (const std::span<const std::byte> part : image) {
    if (images::KindOfImage(part) != images::ImageKind::kPtxText) continue;
    const std::string_view all(reinterpret_cast<const char*>(part.data()), part.size());
    const std::string_view text = all.substr(0, all.find('\0'));
    if (Mentions(text, kernel)) return std::string(text);
  }
  for (const FatEntry& entry : PtxEntries(image, arch)) {
    auto text = images::DecompressPtx(entry);
    if (text && Mentions(*text, kernel)) return text;
  }
  return Error(StatusCode::kNotFound, "its image holds no PTX of it");
}

bool HasOtherCode(const ImageParts& image, uint32_t capability, uint32_t target) {
  return std::any_of(image.begin(), image.end(), [&](std::span<const std::byte> part) {
    if (images::KindOfImage(part) != images::ImageKind::kFatContainer) return false;
    const auto entries = images::ReadFatContainer(part);
    return !entries || std::any_of(entries->begin(), entries->end(), [&](const FatEntry& entry) {
      return entry.kind == FatEntryKind::kCubin && images::IsUsable(entry, capability) && entry.arch != target;
    });
  });
}

Result<VariantText> MakeVariant(const std::string& ptx, const std::string& kernel,
                                const std::vector<std::string>& passes) {
  ptx_transforms::TransformOptions options;
  options.pipelines = {passes};
  options.kernels = {kernel};
  options.placement = ptx_transforms::Placement::kOnly;
  auto transformed = ptx_transforms::TransformText(ptx, options);
  if (!transformed) return std::unexpected(transformed.error());
  const ptx_transforms::KernelVariant& variant = transformed->variants.at(0);
  if (!variant.is_done()) return Error(StatusCode::kFailedPrecondition, variant.refusal.sentence);
  VariantText text;
  text.ptx = std::move(transformed->text);
  text.entry = variant.name;
  text.extra_shared_bytes = variant.extra_shared_bytes;
  text.needs_warp_rows = variant.needs_warp_rows;
  text.waits_for_blocks = variant.waits_for_blocks;
  text.gates_clusters = variant.gates_clusters;
  text.import_table = transformed->import_table;
  for (const ptx_transforms::ImportedVariable& variable : transformed->imports) text.imports.push_back(variable.name);
  return text;
}

}  // namespace tally::server
