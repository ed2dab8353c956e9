#include "client-shim/entry/wire_call.h"

#include <algorithm>

#include "client-shim/state/process.h"
#include "client-shim/state/streams.h"
#include "proto/driver/generated/wire_ops.h"

namespace tally::client_shim {
namespace {

constexpr size_t PaddedTo8(size_t size) { return (size + 7) & ~size_t{7}; }

}  // namespace

WireCall::~WireCall() {
  if (bytes_ != stack_) delete[] bytes_;
}

void WireCall::PutBytes(const void* bytes, size_t size) {
  // The largest record bounds every call; an array beyond it cannot be sent in one.
  if (size > shm::kMaxRequestBytes || size_ + PaddedTo8(size) > shm::kMaxRequestBytes - sizeof(shm::RequestHeader)) {
    refusal_ = CUDA_ERROR_INVALID_VALUE;
    return;
  }
  const size_t padded = PaddedTo8(size);
  if (size_ + padded > capacity_) {
    const size_t capacity = std::max(capacity_ * 2, size_ + padded);
    auto* grown = new std::byte[capacity];
    std::memcpy(grown, bytes_, size_);
    if (bytes_ != stack_) delete[] bytes_;
    bytes_ = grown;
    capacity_ = capacity;
  }
  if (size != 0) std::memcpy(bytes_ + size_, bytes, size);
  std::memset(bytes_ + size_ + size, 0, padded - size);
  size_ += padded;
}

void WireCall::PutHandle(CUevent event) {
  const auto handle = reinterpret_cast<uint64_t>(event);
  PutWord(handle);
  switch (op_) {
    case kOp_cuEventRecord:
    case kOp_cuEventRecordWithFlags:
    case kOp_cuEventQuery:
    case kOp_cuEventElapsedTime_v2:
    case kOp_cuEventDestroy_v2:
    case kOp_cuStreamWaitEvent:
      return;
    default:
      break;
  }
  const Process* process = CurrentProcess();
  if (Event* known = process != nullptr ? process->events.Find(handle) : nullptr; known != nullptr)
    known->StopTracking();
}

void WireCall::PutStream(CUstream stream) {
  uint64_t resolved = 0;
  if (const CUresult result = ResolveStream(stream, &resolved); result != CUDA_SUCCESS) refusal_ = result;
  if (Process* process = CurrentProcess(); process != nullptr && process->managed.any()) [[unlikely]] {
    if (const CUresult result = SendManagedVariables(*process); result != CUDA_SUCCESS) refusal_ = result;
  }
  PutWord(resolved);
}

void WireCall::PutDevice(CUdevice device) {
  const Process* process = CurrentProcess();
  if (process == nullptr) {
    refusal_ = CUDA_ERROR_NOT_INITIALIZED;
  } else if (!process->IsDevice(device)) {
    refusal_ = CUDA_ERROR_INVALID_DEVICE;
  } else {
    PutWord(static_cast<uint64_t>(process->server_ordinal(device)));
  }
}

void WireCall::PutString(const char* text) {
  const size_t size = std::strlen(text);
  PutWord(size);
  PutBytes(text, size);
}

CUresult WireCall::Begin(Channel** channel) {
  if (const CUresult result = CurrentChannel(channel); result != CUDA_SUCCESS) return result;
  if (refusal_ != CUDA_SUCCESS) return refusal_;
  std::byte* room = (*channel)->Begin(op_, static_cast<uint32_t>(size_));
  if (room == nullptr) return (*channel)->failure();
  std::memcpy(room, bytes_, size_);
  return CUDA_SUCCESS;
}

CUresult WireCall::Post() {
  Channel* channel = nullptr;
  if (const CUresult result = Begin(&channel); result != CUDA_SUCCESS) return result;
  channel->Post();
  return CUDA_SUCCESS;
}

CUresult WireCall::Wait() {
  Channel* channel = nullptr;
  if (const CUresult result = Begin(&channel); result != CUDA_SUCCESS) return result;
  reply_ = channel->Call();
  return reply_.result;
}

uint64_t WireCall::TakeWord() {
  uint64_t word = 0;
  TakeBytes(&word, sizeof(word));
  return word;
}

void WireCall::TakeBytes(void* out, size_t size) {
  const size_t available = std::min(size, size_t{reply_.payload_bytes} - taken_);
  if (out != nullptr && available != 0) std::memcpy(out, reply_.payload + taken_, available);
  taken_ = std::min(taken_ + PaddedTo8(size), size_t{reply_.payload_bytes});
}

}  // namespace tally::client_shim
