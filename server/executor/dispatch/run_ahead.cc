#include "server/executor/dispatch/run_ahead.h"

namespace tally::server {

bool RunAhead::HasRoom() {
  while (!marks_.empty() && driver_.cuEventQuery(marks_.front().event) != CUDA_ERROR_NOT_READY) {
    marks_.front().from->Release(marks_.front().event);
    marks_.pop_front();
  }
  return marks_.size() < kMostMarks;
}

void RunAhead::OnLaunch(CUstream stream, EventPool& events) {
  if (++num_unmarked_ < kLaunchesPerMark) return;
  num_unmarked_ = 0;
  CUevent event = nullptr;
  if (events.Acquire(&event) != CUDA_SUCCESS) return;
  if (driver_.cuEventRecord(event, stream) != CUDA_SUCCESS) return events.Release(event);
  marks_.push_back({event, &events});
}

void RunAhead::Clear() {
  for (const Mark& mark : marks_) mark.from->Release(mark.event);
  marks_.clear();
}

}  // namespace tally::server
