#include "server/executor/session/image_store.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "images/cubin.h"
#include "images/fat_container.h"
#include "images/image_kind.h"

namespace tally::server {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243B1;
// An image is assembled before its memory is used: do not let a client announce gigabytes that never come.
constexpr size_t kMaxAssemblies = 64;
constexpr uint64_t kReserveBytes = 64 << 20;

bool MayPrint(std::span<const std::byte> bytes, images::ImageKind kind) {
  if (kind != images::ImageKind::kFatContainer) return images::MentionsPrintf(bytes);
  const auto entries = images::ReadFatContainer(bytes);
  if (!entries) return false;
  return std::any_of(entries->begin(), entries->end(), [](const images::FatEntry& entry) {
    // A compressed entry would have to be unpacked to know: assume that it may.
    return entry.compression != images::Compression::kStored || images::MentionsPrintf(entry.payload);
  });
}

// Whether the bytes are what the client said they are.
bool Agrees(uint32_t format, images::ImageKind kind) {
  switch (static_cast<shm::ImageFormat>(format)) {
    case shm::ImageFormat::kPtx:
      return kind == images::ImageKind::kPtxText;
    case shm::ImageFormat::kElf:
      return kind == images::ImageKind::kCubin;
    case shm::ImageFormat::kContainer:
    case shm::ImageFormat::kWrapper:
      return kind == images::ImageKind::kFatContainer;
  }
  return false;
}

// What is wrong with an image, as a driver would say it.
CUresult Refusal(const Status& why) {
  LOG_INFO("image refused: {}", why.message());
  return why.code() == StatusCode::kResourceExhausted ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
}

CUresult BuildWrapper(const shm::LoadImage& request, ImageBytes* image) {
  std::vector<const void*> containers;
  std::span<const std::byte> rest = image->bytes;
  for (uint32_t i = 0; i <= request.num_prelinked; ++i) {
    const auto kind = images::ValidateImage(rest);
    const auto size = images::FatContainerBytes(rest);
    if (!kind) return Refusal(kind.error());
    if (*kind != images::ImageKind::kFatContainer || !size) return CUDA_ERROR_INVALID_IMAGE;
    containers.push_back(rest.data());
    image->may_print = image->may_print || MayPrint(rest.first(*size), *kind);
    rest = rest.subspan(std::min((*size + 7) & ~size_t{7}, rest.size()));
  }
  image->wrapper = std::make_unique<ImageBytes::Wrapper>();
  image->wrapper->magic = kWrapperMagic;
  image->wrapper->version = request.wrapper_version;
  image->wrapper->first = containers.front();
  if (request.wrapper_version == 2) {
    image->prelinked.assign(containers.begin() + 1, containers.end());
    image->prelinked.push_back(nullptr);
    image->wrapper->prelinked = image->prelinked.data();
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult LoadLibraryData(const DriverTable& driver, const void* image, CUjit_option* options, void** values,
                         unsigned int num_options, CUlibrary* library) {
  CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
  void* preserved = reinterpret_cast<void*>(uintptr_t{1});
  return driver.cuLibraryLoadData(library, image, options, values, num_options, &option, &preserved, 1);
}

bool ImageStore::Write(const shm::WriteImage& piece, std::span<const std::byte> bytes, const char** reason) {
  if (piece.image == 0 || piece.total_bytes == 0 || piece.total_bytes > shm::kMaxImageBytes ||
      bytes.size() < piece.size_bytes) {
    *reason = "image piece with impossible sizes";
    return false;
  }
  if (piece.offset_bytes == 0) {
    if (assemblies_.size() >= kMaxAssemblies) {
      *reason = "more images on their way than a session may have";
      return false;
    }
    if (assemblies_.contains(piece.image)) {
      *reason = "image number used twice";
      return false;
    }
    Assembly& assembly = assemblies_[piece.image];
    assembly.total_bytes = piece.total_bytes;
    assembly.is_refused = !account_.Take(Held::kImageBytes, piece.total_bytes);
    if (!assembly.is_refused) assembly.bytes.reserve(std::min<uint64_t>(piece.total_bytes, kReserveBytes));
  }
  const auto found = assemblies_.find(piece.image);
  if (found == assemblies_.end() || found->second.total_bytes != piece.total_bytes ||
      found->second.received_bytes != piece.offset_bytes || piece.size_bytes > piece.total_bytes - piece.offset_bytes) {
    *reason = "image piece out of place";
    return false;
  }
  found->second.received_bytes += piece.size_bytes;
  if (found->second.is_refused) return true;
  std::vector<std::byte>& whole = found->second.bytes;
  whole.insert(whole.end(), bytes.begin(), bytes.begin() + piece.size_bytes);
  return true;
}

CUresult ImageStore::Take(const shm::LoadImage& request, std::shared_ptr<ImageBytes>* result) {
  const auto found = assemblies_.find(request.image);
  if (found == assemblies_.end()) return CUDA_ERROR_INVALID_VALUE;
  Assembly assembly = std::move(found->second);
  assemblies_.erase(found);
  if (assembly.is_refused) {
    LOG_WARNING("image refused: as much device code as the session or its user may hold");
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto image = std::make_shared<ImageBytes>();
  image->bytes = std::move(assembly.bytes);
  CUresult failure = CUDA_SUCCESS;
  if (image->bytes.size() != assembly.total_bytes) {
    failure = CUDA_ERROR_INVALID_IMAGE;
  } else if (request.format == static_cast<uint32_t>(shm::ImageFormat::kWrapper)) {
    const bool possible = request.wrapper_version == 1 || request.wrapper_version == 2;
    failure = possible ? BuildWrapper(request, image.get()) : CUDA_ERROR_INVALID_IMAGE;
  } else {
    const auto kind = images::ValidateImage(image->bytes);
    if (!kind) {
      failure = Refusal(kind.error());
    } else if (!Agrees(request.format, *kind)) {
      failure = Refusal(Status(StatusCode::kInvalidArgument, "not of the announced format"));
    } else {
      image->may_print = MayPrint(image->bytes, *kind);
    }
  }
  if (failure != CUDA_SUCCESS) {
    account_.Return(Held::kImageBytes, assembly.total_bytes);
    return failure;
  }
  *result = std::move(image);
  return CUDA_SUCCESS;
}

void ImageStore::Return(const ImageBytes& image) { account_.Return(Held::kImageBytes, image.bytes.size()); }

}  // namespace tally::server
