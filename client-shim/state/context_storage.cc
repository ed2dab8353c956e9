#include "client-shim/state/context_storage.h"

namespace tally::client_shim {
namespace {

struct Remembered {
  const ContextStorage* storage;
  uint64_t version;
  uint32_t context;
  void* key;
  void* value;
};
// Each copy of the runtime in the process has a key of its own; they are addresses, so that their middle bits differ.
constexpr size_t kRemembered = 4;
__thread Remembered t_remembered[kRemembered] __attribute__((tls_model("initial-exec"))) = {};

size_t PlaceOf(void* key) {
  const auto value = reinterpret_cast<uint64_t>(key);
  return (value >> 4 ^ value >> 12 ^ value >> 20) % kRemembered;
}

}  // namespace

void ContextStorage::Put(uint32_t context, void* key, void* value, Destructor destructor) {
  const std::lock_guard lock(mutex_);
  entries_[{context, key}] = {value, destructor};
  version_.fetch_add(1, std::memory_order_release);
}

bool ContextStorage::Remove(uint32_t context, void* key) {
  const std::lock_guard lock(mutex_);
  version_.fetch_add(1, std::memory_order_release);
  return entries_.erase({context, key}) != 0;
}

bool ContextStorage::Get(uint32_t context, void* key, void** value) const {
  Remembered& remembered = t_remembered[PlaceOf(key)];
  const uint64_t version = version_.load(std::memory_order_acquire);
  if (remembered.storage == this && remembered.version == version && remembered.context == context &&
      remembered.key == key) {
    *value = remembered.value;
    return true;
  }
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find({context, key});
  if (found == entries_.end()) return false;
  *value = found->second.value;
  remembered = {this, version_.load(std::memory_order_relaxed), context, key, *value};
  return true;
}

void ContextStorage::EndContext(uint32_t context, CUcontext handle) {
  std::vector<std::pair<void*, Entry>> ended;
  {
    const std::lock_guard lock(mutex_);
    version_.fetch_add(1, std::memory_order_release);
    for (auto it = entries_.lower_bound({context, nullptr}); it != entries_.end() && it->first.first == context;) {
      ended.emplace_back(it->first.second, it->second);
      it = entries_.erase(it);
    }
  }
  for (const auto& [key, entry] : ended) {
    if (entry.destructor != nullptr) entry.destructor(handle, key, entry.value);
  }
}

}  // namespace tally::client_shim
