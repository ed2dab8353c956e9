// NodeBudget: how many nodes of graphs an executor keeps for one session beside the session's own: of the shapes of its
// batches, of twins and of the graphs that twins are made of. Each costs about a kilobyte of the host's or the device's
// memory. Who gets none does without: launches go in order, a program's executable is launched itself.
//
//      NodeShare share = budget.Take(graph's nodes);   if (!share) ...;   given back when the share goes
//
// Guarded by the session's sequencer. It outlives its shares.
#pragma once

#include <cstddef>
#include <utility>

namespace tally::server {

class NodeBudget;

class NodeShare {
 public:
  NodeShare() = default;  // of nothing
  NodeShare(NodeShare&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), num_nodes_(std::exchange(other.num_nodes_, 0)) {}
  NodeShare& operator=(NodeShare&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(num_nodes_, other.num_nodes_);
    return *this;
  }
  inline ~NodeShare();

  explicit operator bool() const { return budget_ != nullptr; }
  void GiveBack() { *this = NodeShare(); }

 private:
  friend class NodeBudget;
  NodeShare(NodeBudget* budget, size_t num_nodes) : budget_(budget), num_nodes_(num_nodes) {}

  NodeBudget* budget_ = nullptr;
  size_t num_nodes_ = 0;
};

class NodeBudget {
 public:
  static constexpr size_t kMostNodes = size_t{1} << 16;

  explicit NodeBudget(size_t most_nodes = kMostNodes) : num_left_(most_nodes) {}
  NodeBudget(const NodeBudget&) = delete;
  NodeBudget& operator=(const NodeBudget&) = delete;

  // Of nothing if so many are not left.
  NodeShare Take(size_t num_nodes) {
    if (num_nodes > num_left_) return {};
    num_left_ -= num_nodes;
    return {this, num_nodes};
  }
  size_t num_left() const { return num_left_; }

 private:
  friend class NodeShare;
  size_t num_left_;
};

NodeShare::~NodeShare() {
  if (budget_ != nullptr) budget_->num_left_ += num_nodes_;
}

}  // namespace tally::server
