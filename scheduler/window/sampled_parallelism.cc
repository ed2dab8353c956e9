#include "scheduler/window/sampled_parallelism.h"

namespace tally::scheduler {
namespace {

constexpr Nanoseconds kUnit{1};

uint64_t Units(Nanoseconds time) { return static_cast<uint64_t>(time.count()); }

}  // namespace

void SampledParallelism::Estimate::Add(uint64_t launches, uint64_t work, uint64_t* sum) {
  owed += launches * chain;
  *sum += owed / work;
  owed %= work;
}

void SampledParallelism::Compare(std::span<const Access> accesses, Extent extent) {
  const TimePoint begin = clock_.Now();
  if (num_compared_ == 0) began_ = begin;
  parallelism_.Add(accesses, extent, kUnit);
  is_open_ = true;
  const TimePoint end = clock_.Now();
  cost_ += end - begin;
  if (++num_compared_ == kMostLaunches) EndStretch(end);
}

void SampledParallelism::Pass() {
  if (++num_passed_ % kLaunchesATime != 0) return;
  if (due_since_ == 0) {
    if (clock_.Now() >= looks_at_) due_since_ = num_passed_;
  } else if (num_passed_ - due_since_ >= kMostLaunches) {
    BeginStretch();
  }
}

void SampledParallelism::Close() {
  if (!is_looking_) {
    if (due_since_ != 0) BeginStretch();
    return;
  }
  if (!is_open_) return;
  is_open_ = false;
  const TimePoint begin = clock_.Now();
  parallelism_.Close();
  const TimePoint end = clock_.Now();
  cost_ += end - begin;
  if (num_compared_ >= kLeastLaunches) EndStretch(end);
}

void SampledParallelism::BeginStretch() {
  Settle();
  is_looking_ = true;
  num_compared_ = 0;
  cost_ = cost_.zero();
  before_ = parallelism_.report();
}

void SampledParallelism::EndStretch(TimePoint now) {
  if (is_open_) parallelism_.Close();
  is_open_ = false;
  is_looking_ = false;
  num_passed_ = num_settled_ = due_since_ = 0;
  looks_at_ = began_ + cost_ * 100 / kMostPercent;
  const WindowParallelism::Report stretch = parallelism_.report();
  all_ = {.chain = Units(stretch.longest_chain - before_.longest_chain)};
  read_after_write_ = {.chain = Units(stretch.longest_chain_read_after_write - before_.longest_chain_read_after_write)};
  if (now >= looks_at_) BeginStretch();  // the program is slow enough
}

void SampledParallelism::Settle() {
  const WindowParallelism::Report report = parallelism_.report();
  const uint64_t compared = Units(report.work - counted_.work);
  const uint64_t passed = num_passed_ - num_settled_;
  num_settled_ = num_passed_;
  report_.compared += compared;
  report_.launches += compared + passed;
  report_.longest_chain += Units(report.longest_chain - counted_.longest_chain);
  report_.longest_chain_read_after_write +=
      Units(report.longest_chain_read_after_write - counted_.longest_chain_read_after_write);
  counted_ = report;
  if (passed == 0) return;
  all_.Add(passed, num_compared_, &report_.longest_chain);
  read_after_write_.Add(passed, num_compared_, &report_.longest_chain_read_after_write);
}

const SampledParallelism::Report& SampledParallelism::report() {
  Settle();
  return report_;
}

}  // namespace tally::scheduler
