// CUDA manual: cuLaunchHostFunc and cuStreamAddCallback, and pageable memory in captured copies, which uses the same
// way.
#include <memory>

#include "client-shim/entry/capture_staging.h"
#include "client-shim/entry/copy_plan.h"
#include "client-shim/state/callback_thread.h"
#include "client-shim/state/process.h"
#include "client-shim/transport/session.h"
#include "proto/driver/generated/client_calls.h"
#include "proto/shm/records_launch_abi.h"

namespace tally::client_shim {
namespace {

// `callback` is given up to the executor.
CUresult Append(const Call& call, uint64_t stream, std::unique_ptr<Callback> callback, bool is_stream_callback) {
  if (const CUresult result = call.process->callback_thread.Ensure(); result != CUDA_SUCCESS) return result;
  const shm::LaunchHostFunction request{stream, TokenOf(callback.get()), is_stream_callback ? 1u : 0u, 0};
  const CUresult result = call.channel->PostStruct(shm::Op::kLaunchHostFunction, request);
  if (result == CUDA_SUCCESS) callback.release();
  return result;
}

}  // namespace

CUresult AllocateStaging(const Call& call, size_t size_bytes, void** staging) {
  Session::HostMemory memory;
  const int device = call.process->server_ordinal(call.process->current_device());
  if (const CUresult result = CurrentSession()->AllocateHost(size_bytes, device, shm::HostMemoryUse::kPinned, &memory);
      result != CUDA_SUCCESS)
    return result;
  *staging = memory.address;
  return CUDA_SUCCESS;
}

CUresult CaptureHostCopy(const Call& call, uint64_t stream, void* destination, const void* source, size_t size_bytes) {
  auto callback = std::make_unique<Callback>();
  callback->destination = destination;
  callback->source = source;
  callback->size_bytes = size_bytes;
  return Append(call, stream, std::move(callback), false);
}

namespace entry {

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t word = 0;
  if (const CUresult result = ResolveStream(hStream, &word); result != CUDA_SUCCESS) return result;
  bool is_capturing = false;
  if (const CUresult result = IsStreamCapturing(call, word, &is_capturing); result != CUDA_SUCCESS) return result;
  auto callback = std::make_unique<Callback>();
  callback->function = fn;
  callback->user = userData;
  callback->runs_once = !is_capturing;
  return Append(call, word, std::move(callback), false);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData, unsigned int flags) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t word = 0;
  if (const CUresult result = ResolveStream(hStream, &word); result != CUDA_SUCCESS) return result;
  bool is_capturing = false;
  if (const CUresult result = IsStreamCapturing(call, word, &is_capturing); result != CUDA_SUCCESS) return result;
  if (is_capturing) return call.process->captures.Spoil(word), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto added = std::make_unique<Callback>();
  added->stream_callback = callback;
  added->stream = hStream;
  added->user = userData;
  added->runs_once = true;
  return Append(call, word, std::move(added), true);
}

}  // namespace entry
}  // namespace tally::client_shim
