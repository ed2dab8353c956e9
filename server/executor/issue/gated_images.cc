#include "server/executor/issue/gated_images.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "cubin-transforms/add_gates.h"
#include "ptx-transforms/transform.h"

namespace tally::server {
namespace {

// A folder of its own: an image of a large library would push hundreds of variants out.
constexpr const char* kFolder = "/gated-images";
constexpr uint64_t kMostGatedBytes = uint64_t{2} << 30;

// Raise it when Serialize writes something else.
constexpr uint32_t kFormat = 1;

}  // namespace

bool GatedImages::Less::operator()(const FileCache::Key& a, const FileCache::Key& b) const {
  return std::ranges::lexicographical_compare(a.digest, b.digest);
}

GatedImages::GatedImages(const std::string& cache_directory, uint32_t driver_version, CubinLinker link,
                         std::function<void(Job)> post)
    : cache_(cache_directory.empty() ? "" : cache_directory + kFolder, kMostGatedBytes),
      driver_version_(driver_version),
      link_(std::move(link)),
      post_(std::move(post)) {}

Result<std::shared_ptr<const GatedCode>> GatedImages::Get(const ImageParts& image, uint32_t arch, bool is_text) {
  if (image.size() != 1) return Error(StatusCode::kUnimplemented, "it is linked from several parts");
  const std::string version = is_text ? ptx_transforms::PassesVersion() : cubin_transforms::GatesVersion(arch);
  const std::array<uint32_t, 4> numbers = {kFormat, arch, is_text ? 1u : 0u, driver_version_};
  const FileCache::Key key =
      FileCache::KeyOf({std::as_bytes(std::span(numbers)), FileCache::BytesOf(version), image.front()});
  {
    const std::lock_guard lock(mutex_);
    const auto found = in_use_.find(key);
    if (auto code = found != in_use_.end() ? found->second.lock() : nullptr) return code;
  }
  if (const auto kept = cache_.Find(key)) {
    if (auto code = DeserializeGatedCode(kept->span())) return Share(key, std::move(*code));
  }
  auto code = is_text ? GateText(image.front(), arch) : GateMachineCode(image.front(), arch, link_);
  if (!code) return std::unexpected(code.error());
  auto shared = Share(key, std::move(*code));
  post_([this, key, shared] { cache_.Keep(key, Serialize(*shared)); });
  return shared;
}

std::shared_ptr<const GatedCode> GatedImages::Share(const FileCache::Key& key, GatedCode code) {
  auto shared = std::make_shared<const GatedCode>(std::move(code));
  const std::lock_guard lock(mutex_);
  std::erase_if(in_use_, [](const auto& entry) { return entry.second.expired(); });
  in_use_[key] = shared;
  return shared;
}

}  // namespace tally::server
