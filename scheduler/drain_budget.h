// DrainBudget: what may be in flight, so that it drains in bounded time.
//
// What was handed to the GPU drains before anything else starts, so the queue there must be short in time: long enough
// to hide the gaps between launches, no longer than a newcomer may wait. The estimate is an upper bound as far as the
// estimates of the launches are right: launches of one stream run one after another; streams that together do not fill
// the GPU run side by side, others one after another.
//
//      fills 0.3 + 0.6      A ######|########           drains in the longest of the two
//                           B #####|####|###
//      fills 0.6 + 0.6      A ######|       |########   in the sum of both
//                           B       |#######|
//
// A launch that can yield counts with the turnaround threshold if it is the first of its stream: so long ones run
// beside others. Behind another one it counts in full.
//
// Short launches (LaunchAsked::is_short) drain among themselves within the turnaround threshold, less what is around
// them: a few are enough to keep the GPU busy, and a program whose kernels are all short, or cut into slices, then
// gives the GPU back as soon as one whose kernels can yield. Those of one tenant drain within its threshold
// (LaunchAsked::turnaround), those of all together within the longest of theirs. Whatever is asked goes if nothing of
// its sort is in flight.
//
// Whatever is asked goes if nothing is in flight. What was never measured goes alone. If nothing has ended for
// `longest_wait`, one more goes: a kernel may wait for another one that has yet to be launched.
//
// Constant time: at most kMostStreams streams are in flight at once. Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/clock.h"
#include "scheduler/launch.h"
#include "scheduler/tuning.h"

namespace tally::scheduler {

class DrainBudget {
 public:
  static constexpr size_t kMostStreams = 16;

  DrainBudget(Nanoseconds target_drain, Nanoseconds turnaround_threshold, Nanoseconds longest_wait)
      : target_(target_drain), turnaround_(turnaround_threshold), longest_wait_(longest_wait) {}

  // For what is dispatched from now on.
  void Set(Nanoseconds target_drain, Nanoseconds turnaround_threshold) {
    target_ = target_drain;
    turnaround_ = turnaround_threshold;
  }

  enum class Room : uint8_t {
    kNone,
    kBehind,  // it may go, and starts when something has ended
    kBeside,  // it may go, and starts at once
  };
  Room RoomFor(TenantId tenant, const LaunchAsked& asked, TimePoint now) const {
    if (num_launches_ == 0) return Room::kBeside;
    if (HasGivenUp(now)) return Room::kBehind;
    if (num_unmeasured_ != 0 || asked.duration <= Nanoseconds(0)) return Room::kNone;
    const Load load = LoadWith(tenant, asked);
    if (load.drain() > target_) return Room::kNone;
    if (asked.is_short && num_short_ != 0 && !IsRoomForShort(load, asked)) return Room::kNone;
    return load.fill <= kFillsGpu ? Room::kBeside : Room::kBehind;
  }
  bool Admits(TenantId tenant, const LaunchAsked& asked, TimePoint now) const {
    return RoomFor(tenant, asked, now) != Room::kNone;
  }
  // Nothing has ended for so long that what is in flight may wait for what is asked now.
  bool HasGivenUp(TimePoint now) const { return num_launches_ != 0 && now - last_change_ >= longest_wait_; }
  // When Admits says yes though nothing ends. Meaningful while something is in flight.
  TimePoint GivesUpAt() const { return last_change_ + longest_wait_; }

  // Returns what it counts for, which OnEnded is to be told.
  Nanoseconds OnDispatched(TenantId tenant, const LaunchAsked& asked, TimePoint now) {
    last_change_ = now;
    ++num_launches_;
    if (asked.duration <= Nanoseconds(0)) ++num_unmeasured_;
    Entry& entry = EntryOf(tenant, asked.stream, /*is_new=*/true);
    if (asked.is_short) {
      ++num_short_;
      entry.short_duration += asked.duration;
      entry.turnaround = asked.turnaround;
    }
    const Nanoseconds counted = entry.num_launches == 0 ? AsFirst(asked) : asked.duration;
    ++entry.num_launches;
    entry.duration += counted;
    entry.fill = std::max(entry.fill, asked.fill);
    return counted;
  }

  // Ended or yielded; the same values as at its dispatch.
  void OnEnded(TenantId tenant, const LaunchAsked& asked, Nanoseconds counted, TimePoint now) {
    last_change_ = now;
    --num_launches_;
    if (asked.duration <= Nanoseconds(0)) --num_unmeasured_;
    Entry& entry = EntryOf(tenant, asked.stream, /*is_new=*/false);
    if (asked.is_short) {
      --num_short_;
      entry.short_duration -= asked.duration;
    }
    entry.duration -= counted;
    if (--entry.num_launches == 0) {
      if (&entry == &overflow_) {
        overflow_ = {};
      } else {
        entry = entries_[--num_entries_];
        entries_[num_entries_] = {};
      }
    }
    if (num_launches_ == 0) *this = DrainBudget(target_, turnaround_, longest_wait_);
  }

  bool empty() const { return num_launches_ == 0; }
  // Upper bound of the time that what is in flight takes, if it was all measured.
  Nanoseconds drain() const { return LoadWith({}, {.duration = Nanoseconds(0), .fill = 0}).drain(); }

 private:
  struct Entry {
    TenantId tenant;
    uint64_t stream = 0;
    uint32_t num_launches = 0;
    uint16_t fill = 0;              // of its largest launch since it was last without any
    Nanoseconds duration{0};        // of all its launches, as counted
    Nanoseconds short_duration{0};  // of the short ones among them
    Nanoseconds turnaround{0};      // LaunchAsked::turnaround of the last of those
  };

  struct Load {
    uint32_t fill = 0;
    Nanoseconds longest{0};
    Nanoseconds sum{0};
    Nanoseconds short_longest{0};
    Nanoseconds short_sum{0};
    Nanoseconds short_target{0};  // the longest of those in flight
    Nanoseconds own_longest{0};   // of the short ones of the tenant that asks, and what it asks for
    Nanoseconds own_sum{0};
    bool has_own = false;  // something of it is in flight
    Nanoseconds drain() const { return fill <= kFillsGpu ? longest : sum; }
    Nanoseconds short_drain() const { return fill <= kFillsGpu ? short_longest : short_sum; }
    Nanoseconds own_drain() const { return fill <= kFillsGpu ? own_longest : own_sum; }
  };
  Load LoadWith(TenantId tenant, const LaunchAsked& asked) const {
    Load load;
    load.longest = load.sum = overflow_.duration;
    load.short_longest = load.short_sum = overflow_.short_duration;
    load.fill = overflow_.num_launches == 0 ? 0 : kFillsGpu;
    const Nanoseconds asked_short = asked.is_short ? asked.duration : Nanoseconds(0);
    bool is_there = tenant == TenantId{};
    for (size_t i = 0; i < num_entries_; ++i) {
      const bool is_asking = entries_[i].tenant == tenant && entries_[i].stream == asked.stream;
      const Nanoseconds duration = entries_[i].duration + (is_asking ? asked.duration : Nanoseconds(0));
      const Nanoseconds short_duration = entries_[i].short_duration + (is_asking ? asked_short : Nanoseconds(0));
      load.fill += is_asking ? std::max(entries_[i].fill, asked.fill) : entries_[i].fill;
      load.longest = std::max(load.longest, duration);
      load.sum += duration;
      load.short_longest = std::max(load.short_longest, short_duration);
      load.short_sum += short_duration;
      if (entries_[i].short_duration > Nanoseconds(0))
        load.short_target = std::max(load.short_target, ShortTarget(entries_[i].turnaround));
      if (entries_[i].tenant == tenant) {
        load.own_longest = std::max(load.own_longest, short_duration);
        load.own_sum += short_duration;
        load.has_own = load.has_own || entries_[i].short_duration > Nanoseconds(0);
      }
      is_there = is_there || is_asking;
    }
    if (!is_there) {
      if (num_entries_ == kMostStreams) return {.fill = kFillsGpu + 1, .sum = Nanoseconds::max()};
      load.fill += asked.fill;
      load.longest = std::max(load.longest, AsFirst(asked));
      load.sum += AsFirst(asked);
      load.short_longest = std::max(load.short_longest, asked_short);
      load.short_sum += asked_short;
      load.own_longest = std::max(load.own_longest, asked_short);
      load.own_sum += asked_short;
    }
    return load;
  }

  // Of a tenant's own threshold, or, if it is zero, of everybody's.
  Nanoseconds Turnaround(Nanoseconds own) const { return own > Nanoseconds(0) ? own : turnaround_; }
  Nanoseconds ShortTarget(Nanoseconds own) const {
    return std::max(Turnaround(own) - kGiveBackOverhead, Nanoseconds(0));
  }
  bool IsRoomForShort(const Load& load, const LaunchAsked& asked) const {
    const Nanoseconds target = ShortTarget(asked.turnaround);
    if (load.has_own && load.own_drain() > target) return false;
    return load.short_drain() <= std::max(load.short_target, target);
  }

  Nanoseconds AsFirst(const LaunchAsked& asked) const {
    return asked.can_yield ? std::min(asked.duration, Turnaround(asked.turnaround)) : asked.duration;
  }

  // Of a stream that has launches in flight, or a new one. All are taken only if launches went because nothing had
  // ended for too long; what does not find a place then is counted without its stream.
  Entry& EntryOf(TenantId tenant, uint64_t stream, bool is_new) {
    for (size_t i = 0; i < num_entries_; ++i) {
      if (entries_[i].tenant == tenant && entries_[i].stream == stream) return entries_[i];
    }
    if (!is_new || num_entries_ == kMostStreams) return overflow_;
    entries_[num_entries_] = {.tenant = tenant, .stream = stream};
    return entries_[num_entries_++];
  }

  Nanoseconds target_;
  Nanoseconds turnaround_;
  Nanoseconds longest_wait_;
  TimePoint last_change_{};
  uint32_t num_launches_ = 0;
  uint32_t num_unmeasured_ = 0;
  uint32_t num_short_ = 0;
  size_t num_entries_ = 0;
  std::array<Entry, kMostStreams> entries_{};
  Entry overflow_;
};

}  // namespace tally::scheduler
