#include "sim-driver/api/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "images/codecs.h"
#include "images/fat_container.h"
#include "images/image_kind.h"
#include "sim-driver/api/error.h"

namespace tally::sim_driver {
namespace {

constexpr uint32_t kDeviceArch = 90;

// Code for 9.0 itself may use what only that chip has ("sm_90a"); for older ones such code does not carry over.
bool IsUsable(const images::FatEntry& entry) {
  constexpr uint64_t kTied = images::fat_flag::kArchSpecific | images::fat_flag::kFamilySpecific;
  if (entry.kind != images::FatEntryKind::kPtx || entry.arch > kDeviceArch) return false;
  return (entry.flags & kTied) == 0 || entry.arch == kDeviceArch;
}

// Of the newest usable architecture; several of one architecture (a linked set) go together.
void AppendContainer(std::span<const std::byte> bytes, std::vector<std::string>& texts) {
  const auto entries = images::ReadFatContainer(bytes);
  Require(entries.has_value(), CUDA_ERROR_INVALID_IMAGE);
  uint32_t best = 0;
  for (const images::FatEntry& entry : *entries) {
    if (IsUsable(entry)) best = std::max(best, entry.arch);
  }
  for (const images::FatEntry& entry : *entries) {
    if (!IsUsable(entry) || entry.arch != best) continue;
    auto text = images::DecompressPtx(entry);
    const bool is_too_large = !text && text.error().code() == StatusCode::kResourceExhausted;
    Require(text.has_value(), is_too_large ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE);
    texts.push_back(std::move(*text));
  }
}

void AppendContainerAt(const void* container, std::vector<std::string>& texts) {
  const auto size = images::ImageSizeFromPointer(container);
  Require(size.has_value(), CUDA_ERROR_INVALID_IMAGE);
  AppendContainer({static_cast<const std::byte*>(container), *size}, texts);
}

template <typename Value>
void PutSlot(void** slot, Value value) {
  if (slot != nullptr) std::memcpy(slot, &value, sizeof value);
}

}  // namespace

JitOptions::JitOptions(unsigned count, const CUjit_option* options, void** values) {
  Require(count == 0 || (options != nullptr && values != nullptr), CUDA_ERROR_INVALID_VALUE);
  for (unsigned i = 0; i < count; ++i) {
    switch (options[i]) {
      case CU_JIT_ERROR_LOG_BUFFER:
        error_buffer_ = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: {
        unsigned size = 0;
        std::memcpy(&size, &values[i], sizeof size);
        error_size_ = size;
        error_size_slot_ = &values[i];
        break;
      }
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_size_slot_ = &values[i];
        break;
      case CU_JIT_WALL_TIME:
        wall_time_slot_ = &values[i];
        break;
      default:
        Require(static_cast<unsigned>(options[i]) < CU_JIT_NUM_OPTIONS, CUDA_ERROR_INVALID_VALUE);
        break;
    }
  }
}

void JitOptions::WriteErrorLog(std::string_view text) {
  if (error_buffer_ == nullptr || error_size_ == 0) return;
  error_used_ = std::min(text.size(), error_size_ - 1);
  std::memcpy(error_buffer_, text.data(), error_used_);
  error_buffer_[error_used_] = '\0';
}

void JitOptions::Finish() {
  PutSlot(error_size_slot_, static_cast<unsigned>(error_used_));
  PutSlot(info_size_slot_, 0U);
  PutSlot(wall_time_slot_, 0.0F);
}

std::vector<std::string> PtxOfImage(const void* image) {
  Require(image != nullptr, CUDA_ERROR_INVALID_VALUE);
  std::vector<std::string> texts;
  switch (images::KindOfImageAt(image)) {
    case images::ImageKind::kFatSegment: {
      const auto containers = images::ContainersOfSegment(image);
      Require(containers.has_value(), CUDA_ERROR_INVALID_IMAGE);
      for (const void* container : *containers) AppendContainerAt(container, texts);
      break;
    }
    case images::ImageKind::kFatContainer:
      AppendContainerAt(image, texts);
      break;
    case images::ImageKind::kPtxText: {
      const auto size = images::ImageSizeFromPointer(image);
      Require(size.has_value(), CUDA_ERROR_INVALID_IMAGE);
      texts.emplace_back(static_cast<const char*>(image), *size - 1);
      break;
    }
    case images::ImageKind::kCubin:
      break;
    case images::ImageKind::kUnknown:
      Fail(CUDA_ERROR_INVALID_IMAGE);
  }
  Require(!texts.empty(), CUDA_ERROR_NO_BINARY_FOR_GPU);
  return texts;
}

std::vector<std::string> PtxOfBytes(const std::byte* bytes, size_t size) {
  Require(bytes != nullptr && size != 0, CUDA_ERROR_INVALID_VALUE);
  std::vector<std::string> texts;
  switch (images::KindOfImage({bytes, size})) {
    case images::ImageKind::kFatContainer:
      AppendContainer({bytes, size}, texts);
      break;
    case images::ImageKind::kPtxText: {
      const auto* const text = reinterpret_cast<const char*>(bytes);
      texts.emplace_back(text, strnlen(text, size));
      break;
    }
    case images::ImageKind::kCubin:
      break;
    default:
      Fail(CUDA_ERROR_INVALID_IMAGE);
  }
  Require(!texts.empty(), CUDA_ERROR_NO_BINARY_FOR_GPU);
  return texts;
}

std::shared_ptr<const Program> CompileTexts(const std::vector<std::string>& texts, JitOptions& options) {
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  auto program = CompileProgram(views);
  if (!program) options.WriteErrorLog(program.error().message());
  options.Finish();
  const bool is_too_large = !program && program.error().code() == StatusCode::kResourceExhausted;
  Require(program.has_value(), is_too_large ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX);
  return std::move(*program);
}

std::shared_ptr<const Program> LoadImage(const void* image, JitOptions& options) {
  return CompileTexts(PtxOfImage(image), options);
}

std::vector<std::byte> ReadFileOrFail(const char* path) {
  Require(path != nullptr, CUDA_ERROR_INVALID_VALUE);
  std::ifstream file(path, std::ios::binary);
  Require(file.is_open(), CUDA_ERROR_FILE_NOT_FOUND);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Require(!file.bad() && !text.empty(), CUDA_ERROR_INVALID_IMAGE);
  // PTX text from a file has no NUL of its own.
  std::vector<std::byte> bytes(text.size() + 1);
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::vector<std::byte> ContainerOfTexts(const std::vector<std::string>& texts) {
  constexpr size_t kHeaderBytes = 16;
  constexpr size_t kEntryHeaderBytes = 64;
  constexpr size_t kPayloadAlignment = 8;
  std::vector<std::byte> bytes(kHeaderBytes);
  const auto put = [&bytes](size_t at, auto value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  for (const std::string& text : texts) {
    const size_t at = bytes.size();
    const size_t payload = (text.size() + 1 + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
    bytes.resize(at + kEntryHeaderBytes + payload);
    put(at, static_cast<uint16_t>(images::FatEntryKind::kPtx));
    put(at + 2, uint16_t{0x0101});
    put(at + 4, static_cast<uint32_t>(kEntryHeaderBytes));
    put(at + 8, uint64_t{payload});
    put(at + 24, uint16_t{0});  // language version: the text says it
    put(at + 26, uint16_t{9});
    put(at + 28, kDeviceArch);
    put(at + 40, images::fat_flag::k64Bit);
    std::memcpy(bytes.data() + at + kEntryHeaderBytes, text.data(), text.size());
  }
  put(0, images::kFatContainerMagic);
  put(4, uint16_t{1});
  put(6, static_cast<uint16_t>(kHeaderBytes));
  put(8, uint64_t{bytes.size() - kHeaderBytes});
  return bytes;
}

}  // namespace tally::sim_driver
