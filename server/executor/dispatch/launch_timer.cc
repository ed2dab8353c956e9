#include "server/executor/dispatch/launch_timer.h"

#include <algorithm>

namespace tally::server {

std::vector<LaunchTimer::Sample>::iterator LaunchTimer::FindLocked(uint32_t id) {
  return std::find_if(samples_.begin(), samples_.end(), [id](const Sample& sample) { return sample.id == id; });
}

uint32_t LaunchTimer::BeginSample(CUstream stream, OnDuration on_duration, OnDuration on_disturbed) {
  Sample sample;
  sample.phase = Phase();
  if (!sample.phase && !on_disturbed) return kNone;
  sample.on_duration = std::move(on_duration);
  sample.on_disturbed = std::move(on_disturbed);
  const std::lock_guard lock(mutex_);
  if (samples_.size() >= most_pending_) return kNone;
  if (completions_.Put(stream, &sample.begin, MarkKind::kTimed) != CUDA_SUCCESS) return kNone;
  sample.id = next_id_;
  next_id_ = next_id_ + 1 == kNone ? 0 : next_id_ + 1;
  samples_.push_back(std::move(sample));
  is_any_pending_.store(true, std::memory_order_relaxed);
  return samples_.back().id;
}

void LaunchTimer::EndSample(uint32_t id, CUstream stream, OnDuration on_duration) {
  if (id == kNone) return;
  const std::lock_guard lock(mutex_);
  const auto sample = FindLocked(id);
  if (on_duration) sample->on_duration = std::move(on_duration);
  if (completions_.Put(stream, &sample->end, MarkKind::kTimed) != CUDA_SUCCESS) samples_.erase(sample);
}

void LaunchTimer::DropSample(uint32_t id) {
  if (id == kNone) return;
  const std::lock_guard lock(mutex_);
  samples_.erase(FindLocked(id));
}

std::optional<LaunchTimer::Sample> LaunchTimer::TakeEnded(Look* look) {
  const std::lock_guard lock(mutex_);
  const auto ended = std::find_if(samples_.begin(), samples_.end(), [look](const Sample& sample) {
    return sample.end.exists() && look->HasEnded(sample.end);
  });
  if (ended == samples_.end()) return std::nullopt;
  std::optional<Sample> taken(std::move(*ended));
  samples_.erase(ended);
  is_any_pending_.store(!samples_.empty(), std::memory_order_relaxed);
  return taken;
}

void LaunchTimer::Collect() {
  if (!is_any_pending_.load(std::memory_order_relaxed)) return;
  Look look;
  while (const std::optional<Sample> ended = TakeEnded(&look)) {
    const auto duration = completions_.Between(ended->begin, ended->end);
    if (!duration) continue;
    const bool was_quiet = ended->phase && Phase() == ended->phase;
    const OnDuration& told = was_quiet ? ended->on_duration : ended->on_disturbed;
    if (told) told(*duration);
  }
}

}  // namespace tally::server
