// Addresses that graphs allocate for themselves (memory nodes): known to the session while the graph, or the executable
// made from it, exists, and what no node of the graph frees also after that, until the program frees it. Whether there
// is memory behind them at a moment the driver alone knows.
//
// Guarded by the session's sequencer. The map must outlive it.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <set>
#include <utility>

#include "server/executor/session/memory_map.h"

namespace tally::server {

class GraphMemory {
 public:
  explicit GraphMemory(MemoryMap& map) : map_(map) {}

  // False: other memory of the session is there.
  bool Add(CUgraph graph, uint64_t address, uint64_t size_bytes, uint32_t context, SharedCharge charge) {
    std::shared_ptr<Holder>& holder = graphs_[graph];
    if (holder == nullptr) holder = std::make_shared<Holder>(map_);
    // Freed and allocated again in one graph: the driver gives out the same address.
    if (const auto known = map_.Find(address, size_bytes); known && known->owner == holder.get()) return true;
    holder->unfreed.insert(address);
    return map_.Add({address, size_bytes, MemoryKind::kGraph, context, holder.get(), 0, std::move(charge)});
  }
  // A node of the graph frees it.
  void OnFreed(CUgraph graph, uint64_t address) {
    if (const auto found = graphs_.find(graph); found != graphs_.end()) found->second->OnFreed(address);
  }
  void OnInstantiated(CUgraph graph, CUgraphExec exec) {
    if (const auto found = graphs_.find(graph); found != graphs_.end()) execs_[exec] = found->second;
  }
  // A graph was moved into a node of another: executables of that one have its addresses too.
  void OnMoved(CUgraph graph, CUgraph into) {
    const auto found = graphs_.find(graph);
    if (found == graphs_.end()) return;
    std::shared_ptr<Holder>& holder = graphs_[into];
    if (holder == nullptr) holder = std::make_shared<Holder>(map_);
    holder->children[graph] = found->second;
  }
  void OnDestroyed(CUgraph graph) {
    if (graphs_.erase(graph) == 0) return;
    for (const auto& [other, holder] : graphs_) holder->children.erase(graph);
  }
  void OnDestroyed(CUgraphExec exec) { execs_.erase(exec); }

 private:
  struct Holder {
    explicit Holder(MemoryMap& owner) : map(owner) {}
    ~Holder() { map.RemoveOwned(this, unfreed); }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
    void OnFreed(uint64_t address) {
      unfreed.erase(address);
      for (const auto& [graph, child] : children) child->OnFreed(address);
    }
    MemoryMap& map;
    std::set<uint64_t> unfreed;
    std::map<CUgraph, std::shared_ptr<Holder>> children;  // of graphs that were moved into this one
  };

  MemoryMap& map_;
  std::map<CUgraph, std::shared_ptr<Holder>> graphs_;
  std::map<CUgraphExec, std::shared_ptr<Holder>> execs_;
};

}  // namespace tally::server
