// Parameters of graph nodes as the program gave them, for the cuGraph*NodeGetParams calls: they return structs with
// pointers in them, which stay valid as long as the node. Thread-safe.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

namespace tally::client_shim {

// What a returned parameter struct points at: a kernel's parameters, memory operations, access rights, bodies.
struct KernelNodeStorage {
  std::vector<std::byte> bytes;  // a kernel's: packed as its layout
  std::vector<void*> pointers;   // into bytes, one per parameter; or the list for `extra`
  size_t size_bytes = 0;         // named by that list
};

class NodeParameters {
 public:
  using Parameters = std::variant<CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUDA_HOST_NODE_PARAMS>;

  void Keep(uint64_t node, const Parameters& parameters) {
    const std::lock_guard lock(mutex_);
    parameters_.insert_or_assign(node, parameters);
  }
  template <typename T>
  std::optional<T> Find(uint64_t node) const {
    const std::lock_guard lock(mutex_);
    const auto found = parameters_.find(node);
    if (found == parameters_.end() || !std::holds_alternative<T>(found->second)) return std::nullopt;
    return std::get<T>(found->second);
  }
  // Storage for one node's kernel parameters; what an earlier call returned for the node stays valid.
  KernelNodeStorage* NewKernelStorage(uint64_t node) {
    const std::lock_guard lock(mutex_);
    return storage_.emplace(node, std::make_unique<KernelNodeStorage>())->second.get();
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, Parameters> parameters_;
  std::multimap<uint64_t, std::unique_ptr<KernelNodeStorage>> storage_;
};

}  // namespace tally::client_shim
