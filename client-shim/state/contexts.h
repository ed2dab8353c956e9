// The contexts this process has: one primary per device, and those it created. They are the client's own invention: the
// executor has one real context per device and knows ours by index (handles_abi.h).
//
// Thread-safe. Whether an index is active is read without a lock.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <utility>

#include "client-shim/state/completion.h"
#include "client-shim/state/context_limits.h"
#include "proto/shm/handles_abi.h"

namespace tally::client_shim {

struct Context {
  std::atomic<bool> is_active{false};
  std::atomic<uint8_t> generation{0};
  CUdevice device = 0;      // the client's ordinal
  bool is_visible = false;  // primary contexts: of a device that the program sees; constant after cuInit
  std::atomic<uint32_t> flags{0};
  std::atomic<uint32_t> epoch{0};  // raised when everything in it is destroyed
  ContextLimits limits;
  CompletedBefore completed;           // all its work
  CompletedBefore blocking_completed;  // that of its legacy stream and its blocking ones
  uint32_t num_retained = 0;           // primary contexts; guarded by Contexts::mutex_
  uint32_t num_attached = 0;           // created ones, cuCtxAttach
};

class Contexts {
 public:
  // Handle of the primary context of a device, active or not: it never changes.
  static CUcontext Primary(int server_ordinal) { return HandleOf(static_cast<uint32_t>(server_ordinal), 0); }
  static CUcontext HandleOf(uint32_t index, uint8_t generation) {
    return reinterpret_cast<CUcontext>(shm::MakeHandle(shm::HandleKind::kContext, generation, false, index));
  }
  CUcontext Handle(uint32_t index) const { return HandleOf(index, contexts_[index].generation.load()); }

  // Index of an active context; kNoContext for anything else.
  uint32_t Find(CUcontext handle) const {
    const auto value = reinterpret_cast<uint64_t>(handle);
    const uint64_t index = shm::HandleIndexOf(value);
    if (shm::HandleKindOf(value) != shm::HandleKind::kContext || index >= shm::kMaxContexts) return shm::kNoContext;
    const Context& context = contexts_[index];
    if (!context.is_active.load(std::memory_order_acquire) ||
        HandleOf(static_cast<uint32_t>(index), context.generation.load(std::memory_order_relaxed)) != handle)
      return shm::kNoContext;
    return static_cast<uint32_t>(index);
  }
  // The same, and also a primary context that is not active yet: the runtime makes one current before it retains it.
  uint32_t FindOrPrimary(CUcontext handle) const {
    const auto value = reinterpret_cast<uint64_t>(handle);
    const uint64_t index = shm::HandleIndexOf(value);
    if (index < shm::kMaxDevices && handle == Primary(static_cast<int>(index)) && contexts_[index].is_visible)
      return static_cast<uint32_t>(index);
    return Find(handle);
  }
  bool IsActive(uint32_t index) const {
    return index < shm::kMaxContexts && contexts_[index].is_active.load(std::memory_order_acquire);
  }

  Context& operator[](uint32_t index) { return contexts_[index]; }
  const Context& operator[](uint32_t index) const { return contexts_[index]; }

  // Call with mutex() held.
  void Activate(uint32_t index) {
    if (std::ranges::any_of(contexts_, [](const Context& context) { return context.is_active.load(); }))
      were_several_ = true;
    contexts_[index].is_active = true;
  }
  // At one time.
  bool were_several() const { return were_several_.load(std::memory_order_relaxed); }

  // Serialises opening and closing.
  std::mutex& mutex() { return mutex_; }
  // (from, to): contexts that may use memory of another one's device. Call with mutex() held.
  std::set<std::pair<uint32_t, uint32_t>>& peers() { return peers_; }
  void ForgetPeersOf(uint32_t index) {
    std::erase_if(peers_, [index](const auto& pair) { return pair.first == index || pair.second == index; });
  }
  // A free index for a created context, kNoContext if there is none. Call with mutex() held.
  uint32_t FreeIndex() const {
    for (uint32_t index = shm::kMaxDevices; index < shm::kMaxContexts; ++index) {
      if (!contexts_[index].is_active.load(std::memory_order_relaxed)) return index;
    }
    return shm::kNoContext;
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> were_several_{false};
  std::set<std::pair<uint32_t, uint32_t>> peers_;
  Context contexts_[shm::kMaxContexts];
};

}  // namespace tally::client_shim
