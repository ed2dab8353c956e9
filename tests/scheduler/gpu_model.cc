#include "tests/scheduler/gpu_model.h"

#include <algorithm>

#include "base/check.h"

namespace tally::scheduler {

GpuModel::Launch& GpuModel::At(uint32_t launch) {
  if (launch >= launches_.size()) launches_.resize(launch + 1);
  return launches_[launch];
}

void GpuModel::Dispatch(uint32_t index, const Work& work, TimePoint now) {
  Launch& launch = At(index);
  CHECK(launch.state == State::kGone);
  const uint64_t stamp = launch.end_stamp;
  launch = {.work = work, .left = work.duration};
  launch.end_stamp = stamp;
  launch.may_be_asked = work.can_yield;
  if (work.stream >= streams_.size()) streams_.resize(work.stream + 1);
  streams_[work.stream].push_back(index);
  Enter(index, now);
}

void GpuModel::Resume(uint32_t index, bool can_yield, TimePoint now) {
  Launch& launch = At(index);
  CHECK(launch.state == State::kYielded);
  launch.may_be_asked = can_yield;
  Enter(index, now);
}

void GpuModel::Enter(uint32_t index, TimePoint now) {
  Launch& launch = launches_[index];
  launch.state = State::kWaiting;
  launch.is_leaving = false;
  launch.order = next_order_++;
  launch.dispatched_at = now;
  ++num_in_flight_;
  if (launch.may_be_asked) may_be_asked_.push_back(index);
  PushIfFirst(index);
  StartWhatFits(now);
}

void GpuModel::PushIfFirst(uint32_t index) {
  const Launch& launch = launches_[index];
  if (launch.state == State::kWaiting && streams_[launch.work.stream].front() == index) {
    ready_.push({launch.order, index});
  }
}

void GpuModel::StartWhatFits(TimePoint now) {
  while (!ready_.empty()) {
    const Ready ready = ready_.top();
    Launch& launch = launches_[ready.launch];
    if (launch.state != State::kWaiting || launch.order != ready.order) {
      ready_.pop();
      continue;
    }
    if (fill_ + launch.work.fill > kFillsGpu) return;
    ready_.pop();
    launch.state = State::kRunning;
    launch.started_at = now;
    fill_ += launch.work.fill;
    ++num_running_;
    EndAt(ready.launch, now + launch.left);
  }
}

void GpuModel::EndAt(uint32_t index, TimePoint at) {
  launches_[index].end_stamp = next_stamp_++;
  ends_.push({at, launches_[index].end_stamp, index});
}

void GpuModel::AskToYield(TimePoint now) {
  std::vector<uint32_t> asked;
  asked.swap(may_be_asked_);
  for (const uint32_t index : asked) {
    Launch& launch = launches_[index];
    if (!launch.may_be_asked) continue;
    launch.may_be_asked = false;
    if (launch.state == State::kWaiting) {
      launch.is_leaving = true;
      launch.started_at = now;
      launch.state = State::kYielded;  // the ending below reports it
      EndAt(index, now);
    } else if (launch.state == State::kRunning && now + launch.work.turnaround < launch.started_at + launch.left) {
      launch.is_leaving = true;
      EndAt(index, now + launch.work.turnaround);
    }
  }
  StartWhatFits(now);
}

void GpuModel::Forget(uint32_t index, TimePoint now) {
  Launch& launch = At(index);
  CHECK(launch.state == State::kYielded);
  LeaveStream(index);
  StartWhatFits(now);
}

void GpuModel::LeaveStream(uint32_t index) {
  Launch& launch = launches_[index];
  launch.state = State::kGone;
  launch.may_be_asked = false;
  std::deque<uint32_t>& stream = streams_[launch.work.stream];
  stream.erase(std::find(stream.begin(), stream.end(), index));
  if (!stream.empty()) PushIfFirst(stream.front());
}

bool GpuModel::IsCurrent(const Ending& ending) const { return launches_[ending.launch].end_stamp == ending.stamp; }

std::optional<TimePoint> GpuModel::NextEnd() const {
  while (!ends_.empty() && !IsCurrent(ends_.top())) ends_.pop();
  if (ends_.empty()) return std::nullopt;
  return ends_.top().at;
}

std::optional<GpuModel::End> GpuModel::TakeEnd(TimePoint now) {
  const std::optional<TimePoint> at = NextEnd();
  if (!at || *at > now) return std::nullopt;
  const uint32_t index = ends_.top().launch;
  ends_.pop();
  Launch& launch = launches_[index];
  launch.end_stamp = 0;
  End end{.launch = index,
          .has_yielded = launch.is_leaving,
          .gpu_time = *at - launch.started_at,
          .waited = launch.started_at - launch.dispatched_at};
  --num_in_flight_;
  launch.left -= end.gpu_time;
  if (launch.state == State::kRunning) {
    busy_time_ += GpuShareOf(end.gpu_time, launch.work.fill);
    fill_ -= launch.work.fill;
    --num_running_;
  }
  if (end.has_yielded) {
    launch.state = State::kYielded;
    launch.may_be_asked = false;
  } else {
    LeaveStream(index);
  }
  StartWhatFits(*at);
  return end;
}

}  // namespace tally::scheduler
