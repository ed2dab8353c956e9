#include "server/executor/session/arena_chunks.h"

namespace tally::server {

ArenaChunks::~ArenaChunks() {
  // On another thread than the channel's own, which has no context current; what follows needs one.
  CUcontext context = nullptr;
  if (arena_device_ != kNoDevice && served_.session().core.devices->Context(arena_device_, &context) == CUDA_SUCCESS) {
    driver().cuCtxSetCurrent(context);
  }
  if (arena_device_ != kNoDevice) driver().cuMemHostUnregister(region_.arena());
}

std::byte* ArenaChunks::Arena(CUresult* result) {
  *result = CUDA_SUCCESS;
  if (arena_device_ == kNoDevice) {
    *result = driver().cuMemHostRegister_v2(region_.arena(), ChannelRegion::kArenaBytes,
                                            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (*result != CUDA_SUCCESS) return nullptr;
    arena_device_ = served_.current_device();
  }
  return region_.arena();
}

CUresult ArenaChunks::MarkChunks(uint64_t offset_bytes, uint64_t size_bytes, const Stream& stream) {
  if (size_bytes == 0) return CUDA_SUCCESS;
  const int device = stream.context->device();
  if (const CUresult r = served_.EnterDevice(device); r != CUDA_SUCCESS) return r;
  CompletionSource& completions = served_.session().core.devices->completions(device);
  const uint64_t first = offset_bytes / shm::kArenaChunkBytes;
  const uint64_t last = (offset_bytes + size_bytes - 1) / shm::kArenaChunkBytes;
  for (uint64_t chunk = first; chunk <= last && chunk < shm::kArenaChunks; ++chunk) {
    if (const CUresult r = completions.Put(stream.real, &chunks_[chunk]); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult ArenaChunks::AwaitChunk(uint32_t chunk) {
  if (chunk >= shm::kArenaChunks) return served_.Malformed("arena chunk out of range");
  served_.ReleaseSequencer();
  return waits_.AwaitMark(chunks_[chunk]);
}

}  // namespace tally::server
