// From a handle to what the client knows about it, without a lock: the launch path looks kernels and streams up here.
//
// The index inside a handle (handles_abi.h) addresses a two-level table directly. Entries are owned by the table and
// must have a member `handle`; a stale handle (other generation) finds nothing. Insert and Remove are serialised by the
// caller's order: the executor hands a handle out once, and using one while another thread destroys it is the
// program's error with a native driver too.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "proto/shm/handles_abi.h"

namespace tally::client_shim {

template <typename Entry>
class SlotTable {
 public:
  SlotTable() {
    // Zeroed lazily by the kernel: a table nobody uses costs address space only.
    chunks_ = static_cast<std::atomic<Chunk*>*>(std::calloc(kNumChunks, sizeof(std::atomic<Chunk*>)));
    if (chunks_ == nullptr) throw std::bad_alloc();  // allow: Guarded() turns it into a CUresult
  }
  ~SlotTable() {
    for (uint64_t i = 0; i < end_chunk_; ++i) {
      Chunk* chunk = chunks_[i].load(std::memory_order_relaxed);
      if (chunk == nullptr) continue;
      for (auto& slot : chunk->slot) delete slot.load(std::memory_order_relaxed);
      delete chunk;
    }
    std::free(chunks_);
  }
  SlotTable(const SlotTable&) = delete;
  SlotTable& operator=(const SlotTable&) = delete;

  // Null when the handle is unknown.
  Entry* Find(uint64_t handle) const {
    const uint64_t index = shm::HandleIndexOf(handle);
    const Chunk* chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    Entry* entry = chunk->slot[index % kChunkSlots].load(std::memory_order_acquire);
    return entry != nullptr && entry->handle == handle ? entry : nullptr;
  }

  // Takes the entry over, under entry->handle. What stood in its slot is deleted.
  Entry* Insert(std::unique_ptr<Entry> entry) {
    const uint64_t index = shm::HandleIndexOf(entry->handle);
    const std::lock_guard lock(mutex_);
    std::atomic<Chunk*>& place = chunks_[index / kChunkSlots];
    if (place.load(std::memory_order_relaxed) == nullptr) place.store(new Chunk(), std::memory_order_release);
    end_chunk_ = std::max(end_chunk_, index / kChunkSlots + 1);
    Entry* inserted = entry.release();
    delete place.load(std::memory_order_relaxed)
        ->slot[index % kChunkSlots]
        .exchange(inserted, std::memory_order_acq_rel);
    return inserted;
  }

  // Null when the handle is unknown.
  std::unique_ptr<Entry> Remove(uint64_t handle) {
    const std::lock_guard lock(mutex_);
    if (Find(handle) == nullptr) return nullptr;
    const uint64_t index = shm::HandleIndexOf(handle);
    Chunk* chunk = chunks_[index / kChunkSlots].load(std::memory_order_relaxed);
    return std::unique_ptr<Entry>(chunk->slot[index % kChunkSlots].exchange(nullptr, std::memory_order_acq_rel));
  }

  // Removes every entry for which `is_doomed(entry)`. For the end of a module or context; visits all slots in use: some
  // libraries load and unload a module per call, and the whole directory has megabytes.
  template <typename Predicate>
  void RemoveIf(Predicate is_doomed) {
    const std::lock_guard lock(mutex_);
    for (uint64_t i = 0; i < end_chunk_; ++i) {
      Chunk* chunk = chunks_[i].load(std::memory_order_relaxed);
      if (chunk == nullptr) continue;
      for (auto& slot : chunk->slot) {
        Entry* entry = slot.load(std::memory_order_relaxed);
        if (entry == nullptr || !is_doomed(*entry)) continue;
        slot.store(nullptr, std::memory_order_release);
        delete entry;
      }
    }
  }

 private:
  static constexpr uint64_t kChunkSlots = 1024;
  static constexpr uint64_t kNumChunks = (shm::kMaxHandleIndex + 1) / kChunkSlots;
  struct Chunk {
    std::atomic<Entry*> slot[kChunkSlots]{};
  };

  std::atomic<Chunk*>* chunks_;
  std::mutex mutex_;
  uint64_t end_chunk_ = 0;  // guarded by mutex_: no chunk from here on
};

}  // namespace tally::client_shim
