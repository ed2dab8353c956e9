// Where pointers come from: what is left when the bounds of an index are not known.
#pragma once

#include <unordered_map>
#include <vector>

#include "ptx-transforms/segments/kernel_segments.h"

namespace tally::ptx_transforms {

// What a store wrote that may have gone to local memory.
struct LocalStore {
  NodeId value = kNoNode;
  NodeId address = kNoNode;  // of a generic one, which may have gone elsewhere; kNoNode: it is local for sure
};

class PointerOrigins {
 public:
  // `stores`: all that may have gone to local memory. `segments` must outlive this.
  PointerOrigins(const KernelSegments& segments, const std::vector<LocalStore>& stores);

  // What the value may be an address of, or of something in.
  struct Found {
    std::vector<PointerRoot> roots;  // sorted, each once
    bool is_own = false;             // local or shared memory, or parameters
    std::vector<NodeId> unknown;     // parts that memory or nobody knows, and that nothing around them bounds
    bool is_computed = false;        // some part is bounded rather than exact
    bool has_memory() const;
  };
  Found Of(NodeId value);

 private:
  struct Visit {
    NodeId node;
    bool is_pointer;  // added, not multiplied: a pointer stays one
    bool is_half;     // of a register that is put together of two
    bool is_bounded;  // by a mask, a divisor or the like around it
    bool operator==(const Visit&) const = default;
  };
  // What was visited, in one search. Searches nest: for what an address in the middle may be.
  using Seen = std::unordered_map<NodeId, uint8_t>;
  static void Push(std::vector<Visit>& open, Seen& seen, Visit visit);
  bool Bounds(const FormulaNode& node) const;
  Found Search(NodeId value, uint32_t nesting);
  void AddLoaded(const FormulaNode& load, NodeId address, uint32_t nesting, Found& found, std::vector<Visit>& open,
                 Seen& seen);

  const KernelSegments& segments_;
  std::vector<NodeId> local_values_;                   // what local memory may hold
  std::unordered_map<NodeId, Found> known_addresses_;  // of generic loads
  uint64_t num_visits_ = 0;
};

}  // namespace tally::ptx_transforms
