// Contexts: who owns streams, memory and modules, which context a thread has current, and what a fault leaves behind.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "sim-driver/api/handle_table.h"
#include "sim-driver/api/memory_map.h"
#include "sim-driver/api/printf_buffer.h"
#include "sim-driver/api/stream.h"

namespace tally::sim_driver {

class Device;

// Shared by the handle table, the threads that have it current and running calls; Destroy() ends its life for the
// program while those may still hold the object. Thread-safe.
class Context : public std::enable_shared_from_this<Context> {
 public:
  static std::shared_ptr<Context> Create(Device& device, unsigned flags, bool is_primary, unsigned api_version);

  CUcontext handle() const { return handle_; }
  uint64_t id() const { return id_; }
  Device& device() const { return device_; }
  bool is_primary() const { return is_primary_; }
  unsigned api_version() const { return api_version_; }
  bool is_destroyed() const { return is_destroyed_.load(std::memory_order_acquire); }

  // Waits for all work and frees everything that the context owns. Its handles become invalid. Once only.
  void Destroy();

  // Work: 0 while well. The first fault stays: every later call on the context returns it.
  CUresult error() const { return static_cast<CUresult>(fault_->error.load(std::memory_order_acquire)); }
  const std::shared_ptr<FaultState>& fault() const { return fault_; }
  // Notes the first fault and writes its line to stderr.
  void NoteFault(int error, const std::string& message);

  const std::shared_ptr<ContextMemory>& memory() const { return memory_; }
  PrintfBuffer& printf_buffer() { return *printf_buffer_; }
  const std::shared_ptr<PrintfBuffer>& shared_printf_buffer() const { return printf_buffer_; }

  // Waits until everything submitted so far is done, then writes out the device's printf.
  void Synchronize();
  bool IsIdle();

  StreamPtr legacy_stream();
  StreamPtr ThreadStream();  // of the calling thread
  void AddStream(const StreamPtr& stream);
  void RemoveStream(const StreamPtr& stream);
  // Under the timeline's mutex: tails of all streams, or of the blocking ones.
  void AppendTailsLocked(std::vector<TaskPtr>& tails, bool blocking_only);
  const StreamPtr& legacy_stream_locked() const { return legacy_; }

  // Settings; each value is independent of the others.
  size_t Limit(CUlimit limit) const { return limits_[limit].load(std::memory_order_relaxed); }
  void SetLimit(CUlimit limit, size_t value) { limits_[limit].store(value, std::memory_order_relaxed); }
  std::atomic<unsigned> flags;
  std::atomic<int> cache_config{CU_FUNC_CACHE_PREFER_NONE};
  std::atomic<int> shared_config{CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE};

 private:
  Context(Device& device, unsigned flags, bool is_primary, unsigned api_version);

  Device& device_;
  CUcontext handle_ = nullptr;
  const uint64_t id_;
  const bool is_primary_;
  const unsigned api_version_;
  std::atomic<bool> is_destroyed_{false};
  std::shared_ptr<FaultState> fault_ = std::make_shared<FaultState>();
  std::shared_ptr<ContextMemory> memory_;
  std::shared_ptr<PrintfBuffer> printf_buffer_;
  std::array<std::atomic<size_t>, CU_LIMIT_MAX> limits_{};

  // Guarded by the timeline's mutex.
  StreamPtr legacy_;
  std::unordered_map<std::thread::id, StreamPtr> thread_streams_;
  std::vector<StreamPtr> streams_;
  struct Detached {
    TaskPtr tail;
    bool is_blocking;
  };
  std::vector<Detached> detached_;  // of destroyed streams, until done
};
using ContextPtr = std::shared_ptr<Context>;

HandleTable<CUcontext, Context>& Contexts();
// Fails with INVALID_CONTEXT.
ContextPtr FindContext(CUcontext handle);
// Null when it is gone.
ContextPtr FindContextById(uint64_t id);

std::vector<ContextPtr> AllContexts();

// The calling thread's stack of contexts.
ContextPtr CurrentContextOrNull();
void SetCurrentContext(ContextPtr context);  // null: pops the top
void PushContext(ContextPtr context);
ContextPtr PopContext();  // null when empty

// How a call that needs a current context starts: fails with NOT_INITIALIZED, INVALID_CONTEXT, CONTEXT_IS_DESTROYED or
// the context's sticky error.
ContextPtr EnterContext();

}  // namespace tally::sim_driver
