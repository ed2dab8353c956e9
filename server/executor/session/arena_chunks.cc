#include "server/executor/session/arena_chunks.h"

namespace tally::server {

ArenaChunks::~ArenaChunks() {
  // On another thread than the lane's own, which has no context current; what follows needs one.
  CUcontext context = nullptr;
  if (arena_device_ != kNoDevice && served_.session().core.devices->Context(arena_device_, &context) == CUDA_SUCCESS) {
    driver().cuCtxSetCurrent(context);
  }
  for (const ChunkEvent& chunk : chunk_events_) {
    if (chunk.event != nullptr) driver().cuEventDestroy_v2(chunk.event);
  }
  if (arena_device_ != kNoDevice) driver().cuMemHostUnregister(region_.arena());
}

std::byte* ArenaChunks::Arena(CUresult* result) {
  *result = CUDA_SUCCESS;
  if (arena_device_ == kNoDevice) {
    *result = driver().cuMemHostRegister_v2(region_.arena(), LaneRegion::kArenaBytes,
                                            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (*result != CUDA_SUCCESS) return nullptr;
    arena_device_ = served_.current_device();
  }
  return region_.arena();
}

CUresult ArenaChunks::MarkChunks(uint64_t offset_bytes, uint64_t size_bytes, const Stream& stream) {
  if (size_bytes == 0) return CUDA_SUCCESS;
  const uint64_t first = offset_bytes / shm::kArenaChunkBytes;
  const uint64_t last = (offset_bytes + size_bytes - 1) / shm::kArenaChunkBytes;
  for (uint64_t chunk = first; chunk <= last && chunk < shm::kArenaChunks; ++chunk) {
    auto& [event, device] = chunk_events_[chunk];
    if (event != nullptr && device != stream.context->device()) {
      driver().cuEventDestroy_v2(event);
      event = nullptr;
    }
    if (event == nullptr) {
      device = stream.context->device();
      if (const CUresult r = served_.EnterDevice(device); r != CUDA_SUCCESS) return r;
      if (const CUresult r = driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING); r != CUDA_SUCCESS) return r;
    }
    if (const CUresult r = driver().cuEventRecord(event, stream.real); r != CUDA_SUCCESS) return r;
    chunk_used_[chunk] = true;
  }
  return CUDA_SUCCESS;
}

CUresult ArenaChunks::AwaitChunk(uint32_t chunk) {
  if (chunk >= shm::kArenaChunks) return served_.Malformed("arena chunk out of range");
  served_.GiveUpTurn();
  if (!chunk_used_[chunk]) return CUDA_SUCCESS;
  const CUresult result = waits_.AwaitEvent(chunk_events_[chunk].event);
  if (result == CUDA_SUCCESS) chunk_used_[chunk] = false;
  return result;
}

}  // namespace tally::server
