#include "server/executor/dispatch/launch_timer.h"

#include <algorithm>

namespace tally::server {

uint32_t LaunchTimer::BeginSample(CUstream stream, OnDuration on_duration, OnDuration on_disturbed) {
  Sample sample;
  sample.phase = Phase();
  if (!sample.phase && !on_disturbed) return kNone;
  sample.on_duration = std::move(on_duration);
  sample.on_disturbed = std::move(on_disturbed);
  if (num_pending_.load(std::memory_order_relaxed) >= most_pending_) return kNone;
  if (completions_.Put(stream, &sample.begin, MarkKind::kTimed) != CUDA_SUCCESS) return kNone;
  const std::lock_guard lock(mutex_);
  sample.id = next_id_;
  next_id_ = next_id_ + 1 == kNone ? 0 : next_id_ + 1;
  samples_.push_back(std::move(sample));
  num_pending_.store(samples_.size(), std::memory_order_relaxed);
  return samples_.back().id;
}

void LaunchTimer::EndSample(uint32_t id, CUstream stream, OnDuration on_duration) {
  if (id == kNone) return;
  Mark end;
  if (completions_.Put(stream, &end, MarkKind::kTimed) != CUDA_SUCCESS) return DropSample(id);
  const std::lock_guard lock(mutex_);
  const auto sample = std::find_if(samples_.begin(), samples_.end(), [id](const Sample& s) { return s.id == id; });
  if (sample == samples_.end()) return;
  sample->end = std::move(end);
  if (on_duration) sample->on_duration = std::move(on_duration);
}

void LaunchTimer::DropSample(uint32_t id) {
  if (id == kNone) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(samples_, [id](const Sample& sample) { return sample.id == id; });
  num_pending_.store(samples_.size(), std::memory_order_relaxed);
}

std::optional<LaunchTimer::Sample> LaunchTimer::TakeEnded(Look* look) {
  const std::lock_guard lock(mutex_);
  const auto ended = std::find_if(samples_.begin(), samples_.end(), [look](const Sample& sample) {
    return sample.end.exists() && look->HasEnded(sample.end);
  });
  if (ended == samples_.end()) return std::nullopt;
  std::optional<Sample> taken(std::move(*ended));
  samples_.erase(ended);
  num_pending_.store(samples_.size(), std::memory_order_relaxed);
  return taken;
}

void LaunchTimer::Collect() {
  if (num_pending_.load(std::memory_order_relaxed) == 0) return;
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
