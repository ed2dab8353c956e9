#include "server/executor/dispatch/share_gate.h"

#include <algorithm>

namespace tally::server {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kBetweenLooks = std::chrono::microseconds(20);
// Whether the client has left is looked at so often.
constexpr nanoseconds kLongestSleep = std::chrono::milliseconds(5);

}  // namespace

ShareGate::ShareGate(uint32_t share_permille, std::shared_ptr<TenantPage> page, Surroundings surroundings)
    : page_(std::move(page)), surroundings_(std::move(surroundings)) {
  for (size_t device = 0; device < surroundings_.busy.clocks().size(); ++device) {
    devices_.push_back({{page_->used_until_ns(static_cast<int>(device)), share_permille}, {}});
  }
}

ShareGate::~ShareGate() {
  for (size_t device = 0; device < devices_.size(); ++device) {
    devices_[device].bursts.End(FactsOf(static_cast<int>(device)), devices_[device].bucket, surroundings_.clock.Now());
  }
}

scheduler::ShareBursts::Facts ShareGate::FactsOf(int device) const {
  BusyClock& clock = surroundings_.busy.On(device);
  const bool is_idle = !clock.IsBusy();
  const BusyTimes times = clock.Measure(/*is_high_priority=*/false);
  return {times[0] + times[1], clock.num_put(), is_idle};
}

bool ShareGate::Await(int device) {
  Device& own = devices_[static_cast<size_t>(device)];
  const TimePoint since = surroundings_.clock.Now();
  for (bool has_waited = false;; has_waited = true) {
    const TimePoint now = surroundings_.clock.Now();
    scheduler::ShareBursts::Facts facts = FactsOf(device);
    facts.is_idle |= now - since >= kLongestDrain;
    const auto answer = own.bursts.Next(facts, own.bucket, now);
    if (answer == scheduler::ShareBursts::Answer::kGo) {
      if (has_waited) {
        surroundings_.tenant.figures.Add("held_launches");
        surroundings_.tenant.figures.Add("held_ns", static_cast<uint64_t>((now - since).count()));
      }
      return true;
    }
    if (surroundings_.tenant.has_left()) return false;
    if (answer == scheduler::ShareBursts::Answer::kDrain) {
      surroundings_.look(device);
      if (surroundings_.busy.On(device).IsBusy()) surroundings_.sleep(kBetweenLooks);
    } else {
      surroundings_.sleep(std::min<nanoseconds>(own.bucket.MayGoAt() - now, kLongestSleep));
    }
  }
}

}  // namespace tally::server
