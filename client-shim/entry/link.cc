// CUDA manual: Module Management, the linker. Inputs travel like images; the result is fetched in pieces and kept until
// the link state is destroyed, as the native driver does.
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "client-shim/origins/pairing.h"
#include "client-shim/state/images_upload.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

uint64_t Word(const void* handle) { return reinterpret_cast<uint64_t>(handle); }

// Null if the input is no PTX.
PtxText PtxOf(CUjitInputType type, const OutgoingImage& image) {
  if (type != CU_JIT_INPUT_PTX || !IsPtxKept()) return nullptr;
  const std::span<const std::byte> bytes = image.parts.front().pieces.front();
  return PtxTextOf({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

CUresult Add(CUlinkState state, CUjitInputType type, const OutgoingImage& image, const char* name,
             unsigned int numOptions, CUjit_option* options, void** optionValues) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  JitOptions jit;
  if (const CUresult result = jit.Parse(numOptions, options, optionValues); result != CUDA_SUCCESS) return result;
  const JitOptions& logs = call.process->link_results.Logs(Word(state));
  shm::LinkAdd add{};
  add.handle = Word(state);
  add.input_type = static_cast<uint32_t>(type);
  add.num_options = static_cast<uint32_t>(jit.sent().size());
  add.name_bytes = name != nullptr ? static_cast<uint32_t>(std::strlen(name)) : 0;
  add.info_log_bytes = logs.info_log_bytes();
  add.error_log_bytes = logs.error_log_bytes();
  if (const CUresult result = SendImage(call.channel, image, &add.image); result != CUDA_SUCCESS) return result;
  const size_t option_bytes = jit.sent().size_bytes();
  std::byte* room =
      call.channel->Begin(shm::Op::kLinkAdd, static_cast<uint32_t>(sizeof(add) + option_bytes + add.name_bytes));
  if (room == nullptr) return call.channel->failure();
  std::memcpy(room, &add, sizeof(add));
  if (option_bytes != 0) std::memcpy(room + sizeof(add), jit.sent().data(), option_bytes);
  if (add.name_bytes != 0) std::memcpy(room + sizeof(add) + option_bytes, name, add.name_bytes);
  const Reply reply = call.channel->Call();
  const auto answer = reply.Read<shm::LoadedImage>();
  logs.ReturnLogs(reply, sizeof(answer), answer.info_log_bytes, answer.error_log_bytes);
  if (reply.result == CUDA_SUCCESS)
    call.process->link_results.NoteInput(Word(state), jit.sent().empty() ? PtxOf(type, image) : nullptr);
  return reply.result;
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues, CUlinkState* stateOut) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (stateOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  if (const CUresult result = jit.Parse(numOptions, options, optionValues); result != CUDA_SUCCESS) return result;
  shm::LoadImage create{};
  create.num_options = static_cast<uint32_t>(jit.sent().size());
  create.info_log_bytes = jit.info_log_bytes();
  create.error_log_bytes = jit.error_log_bytes();
  std::byte* room =
      call.channel->Begin(shm::Op::kLinkCreate, static_cast<uint32_t>(sizeof(create) + jit.sent().size_bytes()));
  if (room == nullptr) return call.channel->failure();
  std::memcpy(room, &create, sizeof(create));
  if (!jit.sent().empty()) std::memcpy(room + sizeof(create), jit.sent().data(), jit.sent().size_bytes());
  const Reply reply = call.channel->Call();
  if (reply.result != CUDA_SUCCESS) return reply.result;
  const auto handle = reply.Read<uint64_t>();
  call.process->link_results.KeepLogs(handle, jit);
  *stateOut = reinterpret_cast<CUlinkState>(handle);
  return CUDA_SUCCESS;
}
CUresult cuLinkCreate(unsigned int numOptions, CUjit_option* options, void** optionValues, CUlinkState* stateOut) {
  return entry::cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name,
                          unsigned int numOptions, CUjit_option* options, void** optionValues) {
  if (data == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return Add(state, type, ImageOfBytes(data, size), name, numOptions, options, optionValues);
}
CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name,
                       unsigned int numOptions, CUjit_option* options, void** optionValues) {
  return entry::cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned int numOptions,
                          CUjit_option* options, void** optionValues) {
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  OutgoingImage image;
  if (const CUresult result = ReadImageFile(path, &image); result != CUDA_SUCCESS) return result;
  return Add(state, type, image, path, numOptions, options, optionValues);
}
CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path, unsigned int numOptions,
                       CUjit_option* options, void** optionValues) {
  return entry::cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const JitOptions& logs = call.process->link_results.Logs(Word(state));
  const Reply reply = call.channel->CallStruct(shm::Op::kLinkComplete, Word(state));
  const auto linked = reply.Read<shm::LoadedImage>();
  logs.ReturnLogs(reply, sizeof(linked), linked.info_log_bytes, linked.error_log_bytes);
  if (reply.result != CUDA_SUCCESS) return reply.result;
  const uint64_t size = linked.handle;
  if (size > shm::kMaxImageBytes) return CUDA_ERROR_UNKNOWN;
  std::vector<std::byte> bytes(size);
  for (uint64_t offset = 0; offset < size;) {
    const uint64_t piece = std::min<uint64_t>(shm::kMaxReplyBytes / 2, size - offset);
    const Reply part = call.channel->CallStruct(shm::Op::kReadLinked, shm::ReadLinked{Word(state), offset, piece});
    if (part.result != CUDA_SUCCESS) return part.result;
    if (part.payload_bytes < piece) return CUDA_ERROR_UNKNOWN;
    std::memcpy(bytes.data() + offset, part.payload, piece);
    offset += piece;
  }
  const std::span<std::byte> kept = call.process->link_results.KeepResult(Word(state), std::move(bytes));
  // Before the program can load it.
  if (PtxText ptx = call.process->link_results.OnlyInput(Word(state)); ptx != nullptr && IsPtxKept())
    Origins().Learn(kept, std::move(ptx));
  *cubinOut = kept.data();
  if (sizeOut != nullptr) *sizeOut = kept.size();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  call.process->link_results.Forget(Word(state));
  return call.channel->PostStruct(shm::Op::kLinkDestroy, Word(state));
}

}  // namespace tally::client_shim::entry
