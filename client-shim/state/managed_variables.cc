#include "client-shim/state/managed_variables.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "client-shim/state/own_mappings.h"
#include "client-shim/transport/channel.h"
#include "proto/shm/records_memory_abi.h"
#include "proto/shm/records_stream_abi.h"

namespace tally::client_shim {
namespace {

// Changes are looked for, and sent, in pieces of this size.
constexpr uint64_t kPieceBytes = 4096;

std::byte* Host(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

// While one is alive, the thread's calls are made in a variable's context, whatever is current otherwise.
class InContext {
 public:
  explicit InContext(uint32_t context) : was_(t_thread.context) { t_thread.context = context; }
  ~InContext() { t_thread.context = was_; }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  uint32_t was_;
};

constexpr auto kAddress = static_cast<uint32_t>(shm::Place::kAddress);
constexpr auto kArena = static_cast<uint32_t>(shm::Place::kArena);

// Takes over from `fresh` what the host has not changed itself.
void Merge(std::byte* host, std::byte* exchanged, const std::byte* fresh, size_t size_bytes) {
  if (std::memcmp(host, exchanged, size_bytes) == 0) {
    std::memcpy(host, fresh, size_bytes);
  } else {
    for (size_t i = 0; i < size_bytes; ++i) {
      if (host[i] == exchanged[i]) host[i] = fresh[i];
    }
  }
  std::memcpy(exchanged, fresh, size_bytes);
}

}  // namespace

CUresult ManagedVariables::StreamOf(Channel* channel, uint32_t context, uint64_t* stream) {
  if (const auto known = streams_.find(context); known != streams_.end()) {
    *stream = known->second;
    return CUDA_SUCCESS;
  }
  const Reply reply = channel->CallStruct(shm::Op::kCreateStream, shm::CreateStream{CU_STREAM_NON_BLOCKING, 0});
  if (reply.result != CUDA_SUCCESS) return reply.result;
  *stream = reply.Read<uint64_t>();
  streams_[context] = *stream;
  return CUDA_SUCCESS;
}

CUresult ManagedVariables::Fetch(Channel* channel, uint64_t address, Variable* variable) {
  const InContext in_context(variable->context);
  uint64_t stream = 0;
  if (const CUresult result = StreamOf(channel, variable->context, &stream); result != CUDA_SUCCESS) return result;
  for (uint64_t offset = 0; offset < variable->size_bytes;) {
    const uint64_t piece = std::min<uint64_t>(shm::kArenaChunkBytes, variable->size_bytes - offset);
    uint32_t chunk = 0;
    if (const CUresult result = channel->NextChunk(&chunk); result != CUDA_SUCCESS) return result;
    const shm::Copy copy{Channel::chunk_offset(chunk), address + offset, piece, stream, kArena, kAddress};
    if (const CUresult result = channel->CallStruct(shm::Op::kCopy, copy).result; result != CUDA_SUCCESS) return result;
    channel->NoteChunkDone(chunk);
    Merge(Host(address + offset), variable->exchanged.data() + offset, channel->chunk(chunk), piece);
    offset += piece;
  }
  return CUDA_SUCCESS;
}

CUresult ManagedVariables::Send(Channel* channel, uint64_t address, Variable* variable) {
  const InContext in_context(variable->context);
  const auto is_changed = [&](uint64_t offset) {
    const uint64_t size = std::min(kPieceBytes, variable->size_bytes - offset);
    return std::memcmp(Host(address + offset), variable->exchanged.data() + offset, size) != 0;
  };
  for (uint64_t offset = 0; offset < variable->size_bytes;) {
    if (!is_changed(offset)) {
      offset += kPieceBytes;
      continue;
    }
    uint64_t end = offset + kPieceBytes;
    while (end < variable->size_bytes && end - offset < shm::kArenaChunkBytes && is_changed(end)) end += kPieceBytes;
    end = std::min(end, variable->size_bytes);
    // Without what is the same at both ends: the device may have changed a neighbour in the same piece.
    const std::byte* host = Host(address);
    while (offset < end && host[offset] == variable->exchanged[offset]) ++offset;
    uint64_t last = end;
    while (last > offset && host[last - 1] == variable->exchanged[last - 1]) --last;
    uint64_t stream = 0;
    if (const CUresult result = StreamOf(channel, variable->context, &stream); result != CUDA_SUCCESS) return result;
    uint32_t chunk = 0;
    if (const CUresult result = channel->NextChunk(&chunk); result != CUDA_SUCCESS) return result;
    std::memcpy(channel->chunk(chunk), host + offset, last - offset);
    std::memcpy(variable->exchanged.data() + offset, channel->chunk(chunk), last - offset);
    const shm::Copy copy{address + offset, Channel::chunk_offset(chunk), last - offset, stream, kAddress, kArena};
    if (const CUresult result = channel->CallStruct(shm::Op::kCopy, copy).result; result != CUDA_SUCCESS) return result;
    channel->NoteChunkDone(chunk);
    offset = end;
  }
  return CUDA_SUCCESS;
}

CUresult ManagedVariables::Add(Channel* channel, uint64_t address, uint64_t size_bytes, uint32_t context) {
  const std::lock_guard lock(mutex_);
  if (variables_.contains(address)) return CUDA_SUCCESS;
  const uint64_t begin = address / kPageBytes * kPageBytes;
  const uint64_t end = (address + size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (::mprotect(Host(begin), end - begin, PROT_READ | PROT_WRITE) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Variable variable{size_bytes, context, std::vector<std::byte>(size_bytes)};
  std::memset(Host(address), 0, size_bytes);  // another variable may have been here before
  if (const CUresult result = Fetch(channel, address, &variable); result != CUDA_SUCCESS) return result;
  variables_.emplace(address, std::move(variable));
  num_variables_.fetch_add(1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

void ManagedVariables::Remove(uint64_t address) {
  const std::lock_guard lock(mutex_);
  if (variables_.erase(address) != 0) num_variables_.fetch_sub(1, std::memory_order_relaxed);
}

void ManagedVariables::ForgetContext(uint32_t context) {
  const std::lock_guard lock(mutex_);
  streams_.erase(context);
}

CUresult ManagedVariables::SendChanges(Channel* channel) {
  const std::lock_guard lock(mutex_);
  device_may_change_.store(true, std::memory_order_relaxed);
  for (auto& [address, variable] : variables_) {
    if (const CUresult result = Send(channel, address, &variable); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult ManagedVariables::FetchChanges(Channel* channel) {
  if (!device_may_change_.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  const std::lock_guard lock(mutex_);
  for (auto& [address, variable] : variables_) {
    if (const CUresult result = Fetch(channel, address, &variable); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace tally::client_shim
