#include "scheduler/window/shape.h"

#include <algorithm>

#include "base/check.h"
#include "base/mixed_hash.h"

namespace tally::scheduler {
void WindowShape::Add(const Window::Entry& entry, uint64_t kernel, uint64_t geometry) {
  CHECK(!is_full() && (slots_ & Just(entry.slot)) == 0);
  Node node{.kernel = kernel, .geometry = geometry};
  for (SlotSet left = entry.edges & slots_; left != 0; left = WithoutFirst(left)) {
    const uint8_t before = node_of_slot_[FirstOf(left)];
    node.edges |= Just(before);
    node.level = std::max<uint8_t>(node.level, nodes_[before].level + 1);
  }
  node.track = TrackFor(node);
  tracks_taken_[node.level] |= Just(node.track);
  num_levels_ = std::max<size_t>(num_levels_, node.level + 1);
  num_tracks_ = std::max<size_t>(num_tracks_, node.track + 1);
  hash_ = Mixed(Mixed(Mixed(hash_, kernel), geometry), node.edges);
  slots_ |= Just(entry.slot);
  node_of_slot_[entry.slot] = static_cast<uint8_t>(num_nodes_);
  nodes_[num_nodes_++] = node;
}

uint8_t WindowShape::TrackFor(const Node& node) const {
  const SlotSet taken = tracks_taken_[node.level];
  SlotSet tracks = 0;  // of those that it comes behind
  for (SlotSet left = node.edges; left != 0; left = WithoutFirst(left)) tracks |= Just(nodes_[FirstOf(left)].track);
  // A shape has fewer launches than tracks until it is full, so one is free.
  return (tracks & ~taken) != 0 ? FirstOf(tracks & ~taken) : FirstOf(~taken);
}

void WindowShape::Clear() {
  std::fill_n(tracks_taken_.begin(), num_levels_, SlotSet{0});
  slots_ = 0;
  num_nodes_ = num_levels_ = num_tracks_ = 0;
  hash_ = 0;
}

bool WindowShape::operator==(const WindowShape& other) const {
  return hash_ == other.hash_ && std::ranges::equal(nodes(), other.nodes());
}

}  // namespace tally::scheduler
