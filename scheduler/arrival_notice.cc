#include "scheduler/arrival_notice.h"

#include <algorithm>

namespace tally::scheduler {

void ArrivalNotice::OnExpected(TimePoint from, TimePoint until, TimePoint now) {
  if (state_ == State::kHeld || until <= now || from > now + config_.farthest || until < from) return;
  from = std::max(from, now);
  until = std::min(until, from + config_.widest) + config_.tail;
  if (state_ == State::kIdle) {
    ++counts_.announced;
    state_ = State::kPending;
    told_at_ = now;
    from_ = from;
    until_ = until;
    return;
  }
  from_ = std::min(from_, from);
  until_ = std::min(std::max(until_, until), from_ + config_.widest + config_.tail);
}

ArrivalNotice::Step ArrivalNotice::Advance(TimePoint now, std::optional<TimePoint> work_began, bool is_busy,
                                           NoticeBudget& budget) {
  Step step;
  if (work_began < told_at_) work_began.reset();  // of before
  if (state_ == State::kHeld) {
    if (!work_began_) work_began_ = work_began;
    if (now < until_) {
      step.next = until_;
      return step;
    }
    EndHeld(budget);
    step.releases = true;
    return step;
  }
  if (state_ == State::kIdle) return step;
  if (work_began) {
    ++counts_.late;
    state_ = State::kIdle;
    return step;
  }
  const TimePoint due = from_ - config_.switch_time;
  if (now < due) {
    step.next = due;
    return step;
  }
  state_ = State::kIdle;
  // The GPU is there already, or it is too late: who looks has slept too long, or the clock has jumped.
  if (is_busy || now >= until_) {
    ++counts_.late;
    return step;
  }
  const std::chrono::nanoseconds longest = until_ - now;
  if (!budget.TryTake(longest + config_.switches_cost, now)) {
    ++counts_.refused;
    return step;
  }
  taken_ = longest + config_.switches_cost;
  held_since_ = now;
  work_began_.reset();
  state_ = State::kHeld;
  step.hold = longest;
  step.next = until_;
  return step;
}

void ArrivalNotice::EndHeld(NoticeBudget& budget) {
  state_ = State::kIdle;
  if (!work_began_) {
    ++counts_.missed;
    return;
  }
  const std::chrono::nanoseconds ahead = *work_began_ - held_since_;
  ++(ahead >= config_.least_ahead ? counts_.hit : counts_.late);
  // The switch would have come with the work.
  const std::chrono::nanoseconds cost = std::clamp(ahead - config_.switch_time, std::chrono::nanoseconds(0), taken_);
  budget.Return(taken_ - cost);
}

}  // namespace tally::scheduler
