// Encodes one generated call and decodes its reply; the format is proto/shm/wire_format.md. Used by client_wire.cc.
//
// A call is assembled on the stack (heap beyond kStackBytes) and copied into the ring once its size is known. An
// argument that cannot be sent (a device ordinal that does not exist, a default stream without a context) makes Post or
// Wait return the native error without sending anything.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "client-shim/transport/channel.h"

namespace tally::client_shim {

class WireCall {
 public:
  explicit WireCall(uint16_t op) : op_(op) {}
  ~WireCall();
  WireCall(const WireCall&) = delete;
  WireCall& operator=(const WireCall&) = delete;

  void PutWord(uint64_t word) { PutBytes(&word, sizeof(word)); }
  template <typename T>
  void PutScalar(T value) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(value));
    PutWord(word);
  }
  template <typename T>
  void PutHandle(T* handle) {
    PutWord(reinterpret_cast<uint64_t>(handle));
  }
  // Calls that may have the event recorded by others than cuEventRecord end what is known about it.
  void PutHandle(CUevent event);
  void PutStream(CUstream stream);
  void PutDevice(CUdevice device);
  template <typename T>
  void PutStruct(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    PutBytes(&value, sizeof(value));
  }
  template <typename T>
  void PutArray(const T* elements, size_t count) {
    PutWord(count);
    PutBytes(elements, count * sizeof(T));
  }
  void PutString(const char* text);

  // Sends without waiting.
  CUresult Post();
  // Sends and waits for the reply.
  CUresult Wait();

  // After a successful Wait, in the order of the reply. A null pointer skips.
  uint64_t TakeWord();
  template <typename T>
  void TakeStruct(T* out) {
    TakeBytes(out, sizeof(T));
  }
  template <typename T>
  void TakeHandle(T** out) {
    const uint64_t word = TakeWord();
    if (out != nullptr) *out = reinterpret_cast<T*>(word);
  }
  void TakeArray(void* out, size_t count, size_t element_size) { TakeBytes(out, count * element_size); }

 private:
  static constexpr size_t kStackBytes = 512;

  void PutBytes(const void* bytes, size_t size);  // pads to 8
  void TakeBytes(void* out, size_t size);         // skips the padding too
  CUresult Begin(Channel** channel);

  uint16_t op_;
  CUresult refusal_ = CUDA_SUCCESS;
  std::byte* bytes_ = stack_;
  size_t size_ = 0;
  size_t capacity_ = kStackBytes;
  Reply reply_;
  size_t taken_ = 0;
  alignas(8) std::byte stack_[kStackBytes];
};

}  // namespace tally::client_shim
