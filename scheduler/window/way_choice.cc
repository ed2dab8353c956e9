#include "scheduler/window/way_choice.h"

namespace tally::scheduler {

WayChoice::Next WayChoice::NextUse() {
  if (!is_looking_ && ++uses_since_look_ > uses_between_looks_) {
    is_looking_ = true;
    for (Side& side : sides_) {
      side.num_asked = 0;
      side.times = {};
    }
  }
  if (!is_looking_) return {chosen_, false};
  const bool is_graphs_turn = sides_[Index(IssueWay::kGraph)].num_asked <= sides_[Index(IssueWay::kInOrder)].num_asked;
  const IssueWay way = is_graphs_turn ? IssueWay::kGraph : IssueWay::kInOrder;
  Side& side = sides_[Index(way)];
  // All are asked for; some answers are still to come.
  if (side.num_asked == kSamplesEach) return {chosen_, false};
  ++side.num_asked;
  return {way, true};
}

void WayChoice::OnDuration(IssueWay way, Nanoseconds duration) {
  if (!is_looking_) return;
  sides_[Index(way)].times.Add(duration);
  for (const Side& side : sides_) {
    if (side.times.size() < kSamplesEach) return;
  }
  Decide();
}

void WayChoice::OnLost(IssueWay way) {
  Side& side = sides_[Index(way)];
  if (is_looking_ && side.num_asked > side.times.size()) --side.num_asked;
}

void WayChoice::Decide() {
  for (Side& side : sides_) side.median = side.times.Median();
  const Nanoseconds in_order = duration(IssueWay::kInOrder);
  const bool is_worth_it = duration(IssueWay::kGraph) * 100 <= in_order * (100 - kLeastGainPercent);
  // A clock that shows nothing decides for program order.
  chosen_ = in_order > Nanoseconds(0) && is_worth_it ? IssueWay::kGraph : IssueWay::kInOrder;
  is_looking_ = false;
  uses_since_look_ = 0;
}

}  // namespace tally::scheduler
