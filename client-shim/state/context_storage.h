// Context-local storage: values that a library keeps per context under a key of its own. The CUDA runtime looks one up
// on every call, so that a hit costs a few nanoseconds: each thread remembers its last answers until anything changes.
//
// Thread-safe. Destructors run outside the lock.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace tally::client_shim {

class ContextStorage {
 public:
  using Destructor = void (*)(CUcontext context, void* key, void* value);

  void Put(uint32_t context, void* key, void* value, Destructor destructor);
  bool Remove(uint32_t context, void* key);
  // Null when there is none: a stored null is as good as none to every caller.
  bool Get(uint32_t context, void* key, void** value) const;
  // The context ends: everything in it goes, destructors run with `handle`.
  void EndContext(uint32_t context, CUcontext handle);

 private:
  struct Entry {
    void* value;
    Destructor destructor;
  };
  using Key = std::pair<uint32_t, void*>;

  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::atomic<uint64_t> version_{1};  // raised by every change
};

}  // namespace tally::client_shim
