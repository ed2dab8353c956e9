// TenantRings: the tenants that have launches waiting, in a ring per rank: each in turn, one launch at a time.
//
// Constant time; a tenant is in one ring at most. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tally::scheduler {

class TenantRings {
 public:
  explicit TenantRings(size_t num_rings) : fronts_(num_rings, kNone) {}

  bool empty(size_t ring) const { return fronts_[ring] == kNone; }
  // The ring must not be empty.
  uint32_t Front(size_t ring) const { return fronts_[ring]; }
  bool Contains(uint32_t tenant) const { return tenant < nodes_.size() && nodes_[tenant].next != kNone; }
  // The next one is the front.
  void Advance(size_t ring) {
    if (fronts_[ring] != kNone) fronts_[ring] = nodes_[fronts_[ring]].next;
  }

  // At the end of the ring.
  void Join(size_t ring, uint32_t tenant) {
    if (tenant >= nodes_.size()) nodes_.resize(tenant + 1);
    CHECK(nodes_[tenant].next == kNone);
    uint32_t& front = fronts_[ring];
    if (front == kNone) {
      front = tenant;
      nodes_[tenant] = {tenant, tenant};
      return;
    }
    const uint32_t last = nodes_[front].previous;
    nodes_[tenant] = {last, front};
    nodes_[last].next = tenant;
    nodes_[front].previous = tenant;
  }
  void Leave(size_t ring, uint32_t tenant) {
    Node& node = nodes_[tenant];
    CHECK(node.next != kNone);
    if (node.next == tenant) {
      fronts_[ring] = kNone;
    } else {
      nodes_[node.previous].next = node.next;
      nodes_[node.next].previous = node.previous;
      if (fronts_[ring] == tenant) fronts_[ring] = node.next;
    }
    node = {};
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    uint32_t previous = kNone;
    uint32_t next = kNone;  // kNone: in no ring
  };
  std::vector<uint32_t> fronts_;
  std::vector<Node> nodes_;
};

}  // namespace tally::scheduler
