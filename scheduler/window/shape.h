// WindowShape: what launches of a window look like as a graph: kernels, their kinds of geometry, edges. A graph built
// for the same shape before can be used again with other parameters.
//
//     track 0   [0]--->[2]--->[4]       level: behind how many others a launch has to run, one after another
//               |              ^        track: a row of the drawing; each place of track and level holds one launch
//     track 1   [1]--->[3]-----+        at most, next to one that it comes behind if that can be had
//
// Its launches follow one another in program order, and none of them is started before the shape is. Edges to launches
// that came earlier are left out: shapes are started one behind the other.
//
// The hash finds a remembered shape; only equality says that it is the same: who writes kernels can make hashes agree.
// At most kMostSlots launches; Add takes a step per edge. Nothing allocates (4 KB). Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "scheduler/window/access.h"
#include "scheduler/window/window.h"

namespace tally::scheduler {

class WindowShape {
 public:
  struct Node {
    uint64_t kernel = 0;
    uint64_t geometry = 0;
    SlotSet edges = 0;  // bit i: node i of this shape comes before it at once
    uint8_t level = 0;
    uint8_t track = 0;
    bool operator==(const Node&) const = default;
  };

  // The launch just admitted. `kernel`, `geometry`: any numbers of the caller's that differ where a graph would have to
  // (block and shared memory, say). The shape must not be full.
  void Add(const Window::Entry& entry, uint64_t kernel, uint64_t geometry);
  void Clear();

  bool is_full() const { return num_nodes_ == kMostSlots; }
  std::span<const Node> nodes() const { return {nodes_.data(), num_nodes_}; }
  size_t num_levels() const { return num_levels_; }
  size_t num_tracks() const { return num_tracks_; }
  uint64_t hash() const { return hash_; }
  bool operator==(const WindowShape& other) const;

 private:
  uint8_t TrackFor(const Node& node) const;

  std::array<Node, kMostSlots> nodes_{};
  std::array<uint8_t, kMostSlots> node_of_slot_{};
  std::array<SlotSet, kMostSlots> tracks_taken_{};  // by level
  SlotSet slots_ = 0;                               // that have a node
  size_t num_nodes_ = 0;
  size_t num_levels_ = 0;
  size_t num_tracks_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace tally::scheduler
