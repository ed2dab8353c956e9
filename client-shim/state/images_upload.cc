#include "client-shim/state/images_upload.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "client-shim/origins/pairing.h"
#include "client-shim/state/missing_code.h"
#include "client-shim/state/process.h"
#include "client-shim/state/refusals.h"
#include "images/fat_container.h"
#include "images/image_kind.h"

namespace tally::client_shim {
namespace {

// Big enough to amortise a record, small enough that several fit into the ring and both sides work at once.
constexpr size_t kPieceBytes = 128 * 1024;
static_assert(kPieceBytes + sizeof(shm::WriteImage) + sizeof(shm::RequestHeader) <= shm::kMaxRequestBytes);

constexpr size_t PaddedTo8(size_t size) { return (size + 7) & ~size_t{7}; }

uint32_t FormatOf(images::ImageKind kind) {
  switch (kind) {
    case images::ImageKind::kFatContainer:
      return static_cast<uint32_t>(shm::ImageFormat::kContainer);
    case images::ImageKind::kCubin:
      return static_cast<uint32_t>(shm::ImageFormat::kElf);
    default:
      return static_cast<uint32_t>(shm::ImageFormat::kPtx);
  }
}

// Of the devices that the program sees: 90 for 9.0.
std::vector<uint32_t> Capabilities(const Process& process) {
  std::vector<uint32_t> result;
  for (CUdevice device = 0; device < process.num_devices(); ++device) {
    const int32_t* attribute = process.device(device).attribute;
    result.push_back(static_cast<uint32_t>(attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] * 10 +
                                           attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR]));
  }
  return result;
}

}  // namespace

CUresult JitOptions::Parse(unsigned int count, CUjit_option* options, void** values) {
  if (count != 0 && options == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    const bool is_switch = options[i] == CU_JIT_TARGET_FROM_CUCONTEXT;
    if (values == nullptr && !is_switch) return CUDA_ERROR_INVALID_VALUE;
    void* value = values != nullptr ? values[i] : nullptr;
    const auto number = reinterpret_cast<uint64_t>(value);
    switch (options[i]) {
      case CU_JIT_INFO_LOG_BUFFER:
        info_.buffer = static_cast<char*>(value);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.capacity = static_cast<uint32_t>(number);
        info_.size_value = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.buffer = static_cast<char*>(value);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.capacity = static_cast<uint32_t>(number);
        error_.size_value = &values[i];
        break;
      case CU_JIT_WALL_TIME:
        // Out: milliseconds as a float in the value's own bytes. The compilation happens elsewhere; 0 is honest enough.
        values[i] = nullptr;
        break;
      case CU_JIT_GLOBAL_SYMBOL_NAMES:
      case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
      case CU_JIT_GLOBAL_SYMBOL_COUNT:
      case CU_JIT_REFERENCED_KERNEL_NAMES:
      case CU_JIT_REFERENCED_KERNEL_COUNT:
      case CU_JIT_REFERENCED_VARIABLE_NAMES:
      case CU_JIT_REFERENCED_VARIABLE_COUNT:
        return RefuseUse("cuModuleLoadDataEx: JIT options that list symbols");
      default:
        sent_.push_back({static_cast<uint32_t>(options[i]), 0, number});
    }
  }
  if (info_.buffer == nullptr) info_.capacity = 0;
  if (error_.buffer == nullptr) error_.capacity = 0;
  // A log longer than a reply would not arrive whole.
  info_.capacity = std::min(info_.capacity, shm::kMaxReplyBytes / 4);
  error_.capacity = std::min(error_.capacity, shm::kMaxReplyBytes / 4);
  return CUDA_SUCCESS;
}

void JitOptions::Fill(const Log& log, const Reply& reply, size_t offset, uint32_t size) {
  if (log.capacity != 0) {
    const size_t available = offset < reply.payload_bytes ? reply.payload_bytes - offset : 0;
    const size_t copied = std::min({size_t{size}, available, size_t{log.capacity} - 1});
    if (copied != 0) std::memcpy(log.buffer, reply.payload + offset, copied);
    log.buffer[copied] = '\0';
    size = static_cast<uint32_t>(copied);
  }
  // The native driver returns the bytes filled in the value itself.
  if (log.size_value != nullptr) *log.size_value = reinterpret_cast<void*>(uint64_t{log.capacity != 0 ? size : 0});
}

void JitOptions::ReturnLogs(const Reply& reply, size_t logs_offset, uint32_t info_bytes, uint32_t error_bytes) const {
  Fill(info_, reply, logs_offset, info_bytes);
  Fill(error_, reply, logs_offset + PaddedTo8(info_bytes), error_bytes);
}

CUresult DescribeImage(const void* pointer, OutgoingImage* image) {
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<const void*> pointers = {pointer};
  const bool is_segment = images::KindOfImageAt(pointer) == images::ImageKind::kFatSegment;
  if (is_segment) {
    auto containers = images::ContainersOfSegment(pointer);
    if (!containers || containers->empty()) return CUDA_ERROR_INVALID_IMAGE;
    pointers = *containers;
    image->format = shm::ImageFormat::kWrapper;
    image->wrapper_version = static_cast<const uint32_t*>(pointer)[1];
    image->num_prelinked = static_cast<uint32_t>(pointers.size() - 1);
  } else {
    image->format = static_cast<shm::ImageFormat>(FormatOf(images::KindOfImageAt(pointer)));
  }
  for (const void* part : pointers) {
    const auto size = images::ImageSizeFromPointer(part);
    if (!size) {
      LOG_INFO("a pointer to device code is not understood: {}", size.error().message());
      return CUDA_ERROR_INVALID_IMAGE;
    }
    image->parts.emplace_back(part, *size);
  }
  return CUDA_SUCCESS;
}

OutgoingImage ImageOfBytes(const void* bytes, size_t size_bytes) {
  OutgoingImage image;
  const auto* begin = static_cast<const std::byte*>(bytes);
  image.format = static_cast<shm::ImageFormat>(FormatOf(images::KindOfImage({begin, size_bytes})));
  image.parts.emplace_back(bytes, size_bytes);
  return image;
}

CUresult ReadImageFile(const char* path, OutgoingImage* image) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "rbe"), &std::fclose);
  if (file == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
  std::vector<std::byte> content;
  std::byte buffer[64 * 1024];
  while (const size_t size = std::fread(buffer, 1, sizeof(buffer), file.get())) {
    content.insert(content.end(), buffer, buffer + size);
    if (content.size() > shm::kMaxImageBytes) return CUDA_ERROR_INVALID_IMAGE;
  }
  if (std::ferror(file.get()) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
  if (content.empty()) return CUDA_ERROR_INVALID_IMAGE;
  image->format = ImageOfBytes(content.data(), content.size()).format;
  if (image->format == shm::ImageFormat::kPtx) content.push_back(std::byte{0});  // text ends with one
  image->own_bytes = std::move(content);
  image->path = path;
  image->parts.clear();
  image->parts.emplace_back(image->own_bytes.data(), image->own_bytes.size());
  return CUDA_SUCCESS;
}

uint64_t OutgoingImage::Part::size_bytes() const {
  return std::accumulate(pieces.begin(), pieces.end(), uint64_t{0},
                         [](uint64_t sum, const auto& piece) { return sum + piece.size(); });
}

void OutgoingImage::Part::DropUnusable(std::span<const uint32_t> capabilities) {
  auto used = images::WithoutUnusable(pieces.front(), capabilities, &header);
  if (!used.empty()) pieces = std::move(used);
}

CUresult SendImage(Channel* channel, const OutgoingImage& image, uint32_t* image_id) {
  const auto padded = [&](const OutgoingImage::Part& part) {
    return image.parts.size() > 1 ? PaddedTo8(part.size_bytes()) : part.size_bytes();
  };
  uint64_t total = 0;
  for (const auto& part : image.parts) total += padded(part);
  if (total == 0 || total > shm::kMaxImageBytes) return CUDA_ERROR_INVALID_IMAGE;
  const uint32_t id = CurrentProcess()->next_image.fetch_add(1, std::memory_order_relaxed);
  *image_id = id;
  uint64_t sent = 0;
  for (const auto& part : image.parts) {
    const uint64_t end = sent + padded(part);
    auto piece = part.pieces.begin();
    size_t done_bytes = 0;  // of the piece
    while (sent < end) {
      const auto size = static_cast<uint32_t>(std::min<uint64_t>(kPieceBytes, end - sent));
      std::byte* room = channel->Begin(shm::Op::kWriteImage, static_cast<uint32_t>(sizeof(shm::WriteImage)) + size);
      if (room == nullptr) return channel->failure();
      const shm::WriteImage record{id, size, total, sent};
      std::memcpy(room, &record, sizeof(record));
      std::span<std::byte> rest(room + sizeof(record), size);
      while (!rest.empty() && piece != part.pieces.end()) {
        const std::span<const std::byte> now =
            piece->subspan(done_bytes, std::min(rest.size(), piece->size() - done_bytes));
        if (!now.empty()) std::memcpy(rest.data(), now.data(), now.size());
        rest = rest.subspan(now.size());
        done_bytes += now.size();
        if (done_bytes != piece->size()) continue;
        ++piece;
        done_bytes = 0;
      }
      std::fill(rest.begin(), rest.end(), std::byte{0});  // padding
      channel->Post();
      sent += size;
    }
  }
  return CUDA_SUCCESS;
}

namespace {

CUresult SendAndLoad(Channel* channel, shm::Op op, const OutgoingImage& image, const JitOptions& options,
                     uint64_t* handle) {
  shm::LoadImage load{};
  if (const CUresult result = SendImage(channel, image, &load.image); result != CUDA_SUCCESS) return result;
  load.format = static_cast<uint32_t>(image.format);
  load.wrapper_version = image.wrapper_version;
  load.num_prelinked = image.num_prelinked;
  load.num_options = static_cast<uint32_t>(options.sent().size());
  load.info_log_bytes = options.info_log_bytes();
  load.error_log_bytes = options.error_log_bytes();
  std::byte* room = channel->Begin(op, static_cast<uint32_t>(sizeof(load) + options.sent().size_bytes()));
  if (room == nullptr) return channel->failure();
  std::memcpy(room, &load, sizeof(load));
  if (!options.sent().empty()) std::memcpy(room + sizeof(load), options.sent().data(), options.sent().size_bytes());
  const Reply reply = channel->Call();
  const auto loaded = reply.Read<shm::LoadedImage>();
  options.ReturnLogs(reply, sizeof(loaded), loaded.info_log_bytes, loaded.error_log_bytes);
  if (reply.result != CUDA_SUCCESS) return reply.result;
  *handle = loaded.handle;
  return loaded.handle != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

CUresult SendUsableAndLoad(Channel* channel, shm::Op op, OutgoingImage& image, const JitOptions& options,
                           uint64_t* handle) {
  // An option may ask for an entry that would not be chosen otherwise.
  if (!options.sent().empty()) return SendAndLoad(channel, op, image, options, handle);
  const bool is_fat = image.format == shm::ImageFormat::kContainer || image.format == shm::ImageFormat::kWrapper;
  if (is_fat) {
    const std::vector<uint32_t> capabilities = Capabilities(*CurrentProcess());
    for (OutgoingImage::Part& part : image.parts) part.DropUnusable(capabilities);
  }
  if (image.format == shm::ImageFormat::kElf && IsPtxKept()) {
    OutgoingImage pair;
    pair.own_bytes = PairWithPtx(image.parts.front().pieces.front(), image.path, Capabilities(*CurrentProcess()));
    if (!pair.own_bytes.empty()) {
      pair.format = shm::ImageFormat::kContainer;
      pair.parts.emplace_back(pair.own_bytes.data(), pair.own_bytes.size());
      // Whatever is wrong with the pair: the program's own bytes give the program's own error.
      if (SendAndLoad(channel, op, pair, options, handle) == CUDA_SUCCESS) return CUDA_SUCCESS;
    }
  }
  return SendAndLoad(channel, op, image, options, handle);
}

}  // namespace

CUresult LoadImage(Channel* channel, shm::Op op, OutgoingImage image, const JitOptions& options, uint64_t* handle) {
  OfferedCode offered;
  for (const OutgoingImage::Part& part : image.parts) offered.push_back(part.pieces.front());
  const CUresult result = SendUsableAndLoad(channel, op, image, options, handle);
  if (result != CUDA_ERROR_NO_BINARY_FOR_GPU) return result;
  const Process& process = *CurrentProcess();
  // Libraries are loaded without a context, for all devices: the first one speaks for them.
  const CUdevice device = t_thread.context == shm::kNoContext ? 0 : process.current_device();
  if (process.IsDevice(device)) ExplainMissingCode(process.device(device), offered);
  return result;
}

}  // namespace tally::client_shim
