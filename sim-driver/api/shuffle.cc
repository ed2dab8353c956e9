#include "sim-driver/api/shuffle.h"

#include <algorithm>
#include <utility>

namespace tally::sim_driver {
namespace {

constexpr uint64_t kOneLateIn = 4;
constexpr uint64_t kOneBesideIn = 8;  // the next may start beside it

}  // namespace

// splitmix64.
uint64_t Shuffle::Draw(uint64_t below) {
  uint64_t value = (state_ += 0x9e3779b97f4a7c15);
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return (value ^ (value >> 31)) % below;
}

void Shuffle::Add(std::shared_ptr<Task> task, uint64_t now_ns) {
  waiting_.push_back({std::move(task), Draw(kOneLateIn) == 0 ? now_ns + kLatestNs : 0});
  last_change_ns_ = now_ns;
}

std::shared_ptr<Task> Shuffle::Next(uint64_t now_ns, uint64_t* wake_ns) {
  *wake_ns = kNever;
  if (waiting_.empty()) return nullptr;
  if (num_running_ != 0 && now_ns < patience_ends_ns_) {
    *wake_ns = patience_ends_ns_;
    return nullptr;
  }
  const auto is_late = [now_ns](const Waiting& one) { return one.due_ns > now_ns; };
  const auto late = std::partition(waiting_.begin(), waiting_.end(), [&](const Waiting& one) { return !is_late(one); });
  uint64_t num_choices = static_cast<uint64_t>(late - waiting_.begin());
  if (num_choices == 0) {
    const uint64_t quiet_ns = last_change_ns_ + kQuietNs;
    if (num_running_ != 0 || now_ns < quiet_ns) {
      for (const Waiting& one : waiting_) *wake_ns = std::min(*wake_ns, one.due_ns);
      if (num_running_ == 0) *wake_ns = std::min(*wake_ns, quiet_ns);
      return nullptr;
    }
    num_choices = waiting_.size();
  }
  const auto chosen = waiting_.begin() + static_cast<std::ptrdiff_t>(Draw(num_choices));
  std::shared_ptr<Task> task = std::move(chosen->task);
  waiting_.erase(chosen);
  ++num_running_;
  patience_ends_ns_ = Draw(kOneBesideIn) == 0 ? now_ns : now_ns + kPatienceNs;
  last_change_ns_ = now_ns;
  return task;
}

void Shuffle::OnEnd(uint64_t now_ns) {
  --num_running_;
  last_change_ns_ = now_ns;
}

}  // namespace tally::sim_driver
