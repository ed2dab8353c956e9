// What the handles of one channel's requests name, and the names that driver objects get.
//
// Lives as long as its channel. On the channel's thread, with the sequencer.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/executor/session/served_request.h"

namespace tally::server {

enum class StreamUse {
  kOrdered,  // the call puts something on the stream: the implicit waits of CUDA's stream rules go first
  kLaunch,   // it may be a launch with a gate: likewise, but whoever launches seals the stream if it is none
  kNamed,    // the call only names it
};

class ClientNames {
 public:
  ClientNames(ServedRequest& served, uint32_t channel_index) : served_(served), channel_index_(channel_index) {}
  uint32_t channel_index() const { return channel_index_; }

  // CUDA_ERROR_INVALID_HANDLE when the session has no such object.
  template <typename T>
  CUresult Find(shm::HandleKind kind, uint64_t handle, T* out) {
    *out = static_cast<T>(session().handles(kind).Find(handle));
    return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  // Kernels, modules and libraries are objects of ours around the driver's.
  CUresult Find(shm::HandleKind kind, uint64_t handle, CUfunction* out);
  CUresult Find(shm::HandleKind kind, uint64_t handle, CUkernel* out);
  CUresult Find(shm::HandleKind kind, uint64_t handle, CUmodule* out);
  CUresult Find(shm::HandleKind kind, uint64_t handle, CUlibrary* out);
  template <typename T>
  CUresult FindOptional(shm::HandleKind kind, uint64_t handle, T* out) {
    *out = nullptr;
    return handle == 0 ? CUDA_SUCCESS : Find(kind, handle, out);
  }
  template <typename T>
  CUresult FindAll(shm::HandleKind kind, const std::vector<uint64_t>& handles, std::vector<T>* out) {
    out->resize(handles.size());
    for (size_t i = 0; i < handles.size(); ++i) {
      if (const CUresult r = Find(kind, handles[i], &(*out)[i]); r != CUDA_SUCCESS) return r;
    }
    return CUDA_SUCCESS;
  }
  void Forget(shm::HandleKind kind, uint64_t handle) { session().handles(kind).Remove(handle); }
  // The id of a driver object, named now if need be. 0 and a malformed request when the table is full.
  uint64_t NameOf(shm::HandleKind kind, void* value);

  // `handle` is 0 or 1 (legacy), 2 (per-thread) or a stream's id.
  CUresult FindStream(uint64_t handle, Stream** out);
  CUresult ResolveStream(uint64_t handle, StreamUse use, CUstream* out);
  CUresult ResolveStream(uint64_t handle, StreamUse use, Stream** out);

 private:
  SessionState& session() const { return served_.session(); }

  ServedRequest& served_;
  const uint32_t channel_index_;
};

}  // namespace tally::server
