#include "client-shim/state/streams.h"

#include "client-shim/state/process.h"

namespace tally::client_shim {

CUresult ResolveStream(CUstream stream, uint64_t* word) {
  const auto value = reinterpret_cast<uint64_t>(stream);
  if (value <= shm::kPerThreadStream) {
    *word = value != 0 ? value : t_thread.is_per_thread ? shm::kPerThreadStream : shm::kLegacyStream;
    return t_thread.context != shm::kNoContext ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  }
  *word = value;
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return process->streams.Find(value) != nullptr && shm::HandleKindOf(value) == shm::HandleKind::kStream
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_HANDLE;
}

CUresult ResolveStreamForWork(Process& process, CUstream stream, uint64_t* word) {
  if (const CUresult result = ResolveStream(stream, word); result != CUDA_SUCCESS) return result;
  if (process.managed.any()) [[unlikely]] {
    if (const CUresult result = SendManagedVariables(process); result != CUDA_SUCCESS) return result;
  }
  return *word == shm::kLegacyStream ? process.captures.CheckLegacyStream(t_thread.context) : CUDA_SUCCESS;
}

CUresult SendManagedVariables(Process& process) {
  Channel* channel = nullptr;
  const CUresult result = CurrentChannel(&channel);
  return result == CUDA_SUCCESS ? process.managed.SendChanges(channel) : result;
}

CUresult FetchManagedVariables() {
  Process* process = CurrentProcess();
  if (process == nullptr || !process->managed.any()) return CUDA_SUCCESS;
  Channel* channel = nullptr;
  const CUresult result = CurrentChannel(&channel);
  return result == CUDA_SUCCESS ? process->managed.FetchChanges(channel) : result;
}

CUresult FinishWait(Channel* channel) {
  if (Process* process = CurrentProcess(); process != nullptr && process->managed.any()) [[unlikely]] {
    if (const CUresult result = process->managed.FetchChanges(channel); result != CUDA_SUCCESS) return result;
  }
  return channel->TakeAsyncError();
}

uint32_t ContextOfStream(uint64_t word) {
  if (word <= shm::kPerThreadStream) return t_thread.context;
  const Process* process = CurrentProcess();
  const Stream* stream = process != nullptr ? process->streams.Find(word) : nullptr;
  return stream != nullptr ? stream->context : shm::kNoContext;
}

}  // namespace tally::client_shim
