// Copies and fills with both sides checked against the session's memory: records (records_memory_abi.h) turned into the
// driver's structs. Shared by stream operations and graph nodes.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>

#include "proto/shm/records_memory_abi.h"
#include "server/executor/session/arena_chunks.h"
#include "server/executor/session/client_names.h"
#include "server/executor/session/served_request.h"

namespace tally::server {

// Where the arena is touched, if it is: the chunks have to be marked after the copy was put on its stream.
struct ArenaUse {
  bool used = false;
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
};

enum class CopyDirection { kUp, kDown, kDevice };

struct BoxCopy {
  CUDA_MEMCPY3D parameters{};
  ArenaUse arena;
  CopyDirection direction = CopyDirection::kDevice;
  uint64_t size_bytes = 0;
};

// CUDA_ERROR_INVALID_VALUE when a side is not the session's; a malformed request when places make no sense.
// `inline_bytes` is what follows the record, for Place::kInline.
CUresult ReadBoxCopy(ServedRequest& served, ClientNames& names, ArenaChunks& chunks, const shm::CopyBox& box,
                     std::span<const std::byte> inline_bytes, BoxCopy* copy);
// Checks the elements and the range.
CUresult CheckFill(ServedRequest& served, const shm::Fill& fill);
// Whether the address is pinned host memory of the session (it is device memory otherwise).
bool IsPinned(ServedRequest& served, uint64_t address);

}  // namespace tally::server
