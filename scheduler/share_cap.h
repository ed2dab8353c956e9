// A cap on the time that a tenant has work on a GPU: 30 % means 300 ms of each second, as busy clocks count it.
//
//     work  |====|            |====|            |====|        30 %: a burst of 10 ms, then 23 ms without work
//           put  drained      may go again
//
// What goes to the GPU cannot be called back, so it goes in bursts: as many operations as take about kBurst, then
// nothing more until they are complete and their time is paid for. How long operations take is learned from the bursts
// before. A burst is paid for in advance, as it is expected to be, so that many programs of one tenant do not all begin
// one at once; what it really took is set right at its end.
//
// Pure: the caller gives `now`, and waits.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"
#include "scheduler/launch.h"

namespace tally::scheduler {

// A tenant's account with one device: until when what it has used is paid for. The word may be shared by processes, any
// of which may die at any moment: what is lost then is one burst. Thread-safe.
class ShareBucket {
 public:
  // `share_permille`: 1 to kWholeShare.
  ShareBucket(std::atomic<int64_t>& used_until_ns, uint32_t share_permille)
      : used_until_ns_(used_until_ns), share_permille_(share_permille) {}

  // In the past or now: it may.
  TimePoint MayGoAt() const { return TimePoint(Nanoseconds(used_until_ns_.load(std::memory_order_relaxed))); }
  // A burst begins that is expected to take so long. Time that the tenant did not want is not kept for it.
  void Begin(Nanoseconds expected, TimePoint now);
  // It took so much more than expected, or less if negative.
  void Settle(Nanoseconds difference, TimePoint now);

  // Waits end late by as much as this: it is not lost.
  static constexpr Nanoseconds kCredit = std::chrono::milliseconds(2);
  // However much it has used.
  static constexpr Nanoseconds kLongestDebt = std::chrono::seconds(60);

 private:
  int64_t PriceOf(Nanoseconds busy) const { return busy.count() * int64_t{kWholeShare} / share_permille_; }

  std::atomic<int64_t>& used_until_ns_;
  const int64_t share_permille_;
};

// The bursts of one session on one device. Not thread-safe.
class ShareBursts {
 public:
  static constexpr Nanoseconds kBurst = std::chrono::milliseconds(10);
  static constexpr Nanoseconds kFirstGuess = std::chrono::milliseconds(1);  // of the first burst
  static constexpr uint64_t kMostOperations = 256;                          // of one burst

  struct Facts {
    Nanoseconds busy{0};   // ever, what runs included
    uint64_t num_put = 0;  // operations ever
    bool is_idle = false;  // none of them is on the device
  };
  enum class Answer : uint8_t {
    kGo,     // now
    kDrain,  // once nothing is on the device
    kWait,   // at ShareBucket::MayGoAt
  };
  // What is to be done about the program's next operation. To be asked again until it may go.
  Answer Next(const Facts& facts, ShareBucket& bucket, TimePoint now);
  // There will be none.
  void End(const Facts& facts, ShareBucket& bucket, TimePoint now);

 private:
  void Close(const Facts& facts, ShareBucket& bucket, TimePoint now);

  bool is_open_ = false;
  Facts began_;               // of the burst that is open
  Nanoseconds expected_{0};   // likewise
  uint64_t allowance_ = 1;    // operations, of that burst or the one before
  Nanoseconds operation_{0};  // about what one takes; zero: not known
};

}  // namespace tally::scheduler
