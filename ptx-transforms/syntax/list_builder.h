// Collects the items of one List on a stack that nested lists share, so that no list costs an allocation of its own.
#pragma once

#include <span>
#include <vector>

#include "ptx-transforms/syntax/arena.h"

namespace tally::ptx_transforms {

template <typename T>
class ListBuilder {
 public:
  explicit ListBuilder(std::vector<T>& stack) : stack_(stack), base_(stack.size()) {}
  ~ListBuilder() { stack_.erase(stack_.begin() + static_cast<std::ptrdiff_t>(base_), stack_.end()); }
  ListBuilder(const ListBuilder&) = delete;
  ListBuilder& operator=(const ListBuilder&) = delete;

  void Add(const T& item) { stack_.push_back(item); }
  List<T> Finish(Arena& arena) const { return arena.Copy(std::span<const T>(stack_).subspan(base_)); }

 private:
  std::vector<T>& stack_;
  size_t base_;
};

}  // namespace tally::ptx_transforms
