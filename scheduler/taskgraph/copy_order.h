// CopyOrder: what the steps of a plan must come behind, copy by copy: who reads a copy comes behind whoever wrote it
// last; who writes it, behind all who read it since, as well.
//
// A step is noted once for each copy that it touches; a step for each reader that a write finds. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tally::scheduler {

class CopyOrder {
 public:
  explicit CopyOrder(size_t num_copies) : last_writer_(num_copies, kNone), readers_(num_copies, kNone) {}

  // Appends the steps that this one comes behind for that.
  void Read(size_t copy, uint32_t step, std::vector<uint32_t>& before) {
    if (last_writer_[copy] != kNone) before.push_back(last_writer_[copy]);
    links_.push_back({step, readers_[copy]});
    readers_[copy] = static_cast<uint32_t>(links_.size() - 1);
  }
  void Write(size_t copy, uint32_t step, std::vector<uint32_t>& before) {
    if (last_writer_[copy] != kNone) before.push_back(last_writer_[copy]);
    for (uint32_t at = readers_[copy]; at != kNone; at = links_[at].next) before.push_back(links_[at].step);
    readers_[copy] = kNone;
    last_writer_[copy] = step;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Link {
    uint32_t step;
    uint32_t next;
  };
  std::vector<uint32_t> last_writer_;  // by copy: a step
  std::vector<uint32_t> readers_;      // by copy: the first of its links
  std::vector<Link> links_;
};

}  // namespace tally::scheduler
