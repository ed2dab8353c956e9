#include "scheduler/window/shape.h"

#include <algorithm>

#include "base/check.h"

namespace tally::scheduler {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 32);
}

}  // namespace

void WindowShape::Add(const Window::Admission& admission, uint64_t kernel, uint64_t geometry) {
  CHECK(!is_full() && (slots_ & Just(admission.slot)) == 0);
  Node node{.kernel = kernel, .geometry = geometry};
  for (SlotSet left = admission.edges & slots_; left != 0; left = WithoutFirst(left)) {
    const uint8_t before = node_of_slot_[FirstOf(left)];
    node.edges |= Just(before);
    node.level = std::max<uint8_t>(node.level, nodes_[before].level + 1);
  }
  node.lane = LaneFor(node);
  lanes_taken_[node.level] |= Just(node.lane);
  num_levels_ = std::max<size_t>(num_levels_, node.level + 1);
  num_lanes_ = std::max<size_t>(num_lanes_, node.lane + 1);
  hash_ = Mix(Mix(Mix(hash_, kernel), geometry), node.edges);
  slots_ |= Just(admission.slot);
  node_of_slot_[admission.slot] = static_cast<uint8_t>(num_nodes_);
  nodes_[num_nodes_++] = node;
}

uint8_t WindowShape::LaneFor(const Node& node) const {
  const SlotSet taken = lanes_taken_[node.level];
  SlotSet lanes = 0;  // of those that it comes behind
  for (SlotSet left = node.edges; left != 0; left = WithoutFirst(left)) lanes |= Just(nodes_[FirstOf(left)].lane);
  // A shape has fewer launches than lanes until it is full, so one is free.
  return (lanes & ~taken) != 0 ? FirstOf(lanes & ~taken) : FirstOf(~taken);
}

void WindowShape::Clear() {
  std::fill_n(lanes_taken_.begin(), num_levels_, SlotSet{0});
  slots_ = 0;
  num_nodes_ = num_levels_ = num_lanes_ = 0;
  hash_ = 0;
}

bool WindowShape::operator==(const WindowShape& other) const {
  return hash_ == other.hash_ && std::ranges::equal(nodes(), other.nodes());
}

}  // namespace tally::scheduler
