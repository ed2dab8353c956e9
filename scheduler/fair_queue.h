// FairQueue: weighted deficit round robin over measured time, whose empty rounds cost nothing.
//
// In every round a member may use `quantum x weight` of GPU time; what it uses beyond that it owes to later rounds. GPU
// launches take from microseconds to seconds, and how long one takes is known only afterwards. So a member pays an
// estimate when a launch goes and the difference when it ends, and may owe thousands of rounds. Instead of visiting it
// in vain in each of them, it is filed under the round in which it has paid off:
//
//      round      17        18        19   ...   142
//      members    C, A      B                    D (ran one launch of 12 ms)
//
// The rounds are a circle of buckets with a bitmap, so every operation takes constant time, with any number of members
// and any durations. Debts beyond the circle are filed under its last round and looked at again there.
//
// A member that has nothing to run loses its credit when its round ends, and keeps its debt: credit cannot be hoarded,
// and a program that submits one long launch at a time gets no more than one that keeps a queue. One that is back
// before the round ends goes on where it was, so programs that wait for each launch get what their weight says too.
//
// A member whose work comes one piece at a time has nothing to run for a moment after each. It may be *expected*: it
// keeps its place, and the round does not end before it is back or that time is over.
//
// Members are small dense numbers (indices of tenants). Not thread-safe. Between two members that have work all the
// time, used time divided by weight differs by at most quantum + (longest launch / weight) of each.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "scheduler/launch.h"

namespace tally::scheduler {

class FairQueue {
 public:
  struct Config {
    // GPU time per round and unit of weight: 100 us for a tenant of default weight.
    Nanoseconds quantum = std::chrono::microseconds(1);
    // For how long a member whose work has run out is expected back. Zero: not at all.
    Nanoseconds expects_back{0};
  };

  explicit FairQueue(Config config) : quantum_(config.quantum.count()), expects_back_(config.expects_back) {
    buckets_.fill(kNone);
  }

  // A newcomer owes nothing and is owed nothing. `weight` is at least 1.
  void Add(uint32_t member, uint32_t weight);
  void Remove(uint32_t member);
  // Takes effect with the round in which it is made.
  void SetWeight(uint32_t member, uint32_t weight);

  // The member has something to run / has nothing. Repeated calls change nothing.
  void Join(uint32_t member);
  void Leave(uint32_t member);
  // The member has nothing to run and is expected to have soon.
  void LeaveUntil(uint32_t member, TimePoint until);
  // Its work has run out: one of the two, as the configuration says.
  void RunOut(uint32_t member, TimePoint now) {
    expects_back_ > Nanoseconds(0) ? LeaveUntil(member, now + expects_back_) : Leave(member);
  }

  // Whose turn it would be now, nothing if nobody has something to run. Only if `may_expect` this may be one that is
  // expected. Nothing is decided yet: who joins meanwhile may come first.
  std::optional<uint32_t> Next(TimePoint now, bool may_expect);
  // The first of Next() and NextOfRound() that has something to run. Nothing: all that have are of later rounds.
  std::optional<uint32_t> NextReady(TimePoint now, bool may_expect);
  // What the last NextReady found at the head: a member that is expected, and until when.
  std::optional<TimePoint> waits_until() const { return waits_until_; }
  // It is the turn of `member`, which must be Next() or one of NextOfRound(): earlier rounds are over.
  void Begin(uint32_t member) { round_ = std::max(round_, members_[member].round); }
  // Both in one.
  std::optional<uint32_t> Front() {
    const std::optional<uint32_t> next = Next(TimePoint::max(), false);
    if (next) Begin(*next);
    return next;
  }
  bool IsExpected(uint32_t member) const { return members_[member].is_expected; }
  // Whose turn it is also, in the same round, after `member`, which must be Front(), Next() or come from here. In which
  // order the members of a round are served makes no difference to what they get.
  std::optional<uint32_t> NextOfRound(uint32_t member) const;
  // The member used `time`; negative: it used less than it paid. May end its turn.
  void Charge(uint32_t member, Nanoseconds time);

  // Nobody has something to run.
  bool empty() const { return num_joined_ == num_expected_; }
  uint32_t num_joined() const { return num_joined_ - num_expected_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kNumBuckets = 1024;

  struct Member {
    int64_t credit = 0;  // when `round` comes, in ns; above 0 unless the debt exceeds the circle
    uint64_t round = 0;  // of its next turn
    uint32_t weight = 0;
    uint32_t previous = kNone;  // in its bucket, while joined; circular, the first one's is the last
    uint32_t next = kNone;
    bool is_joined = false;    // in a bucket
    bool is_expected = false;  // and has nothing to run
    TimePoint expected_until{};
  };

  int64_t Share(const Member& member) const { return quantum_ * member.weight; }
  void Renew(Member& member) const;
  // Moves the member to the round in which its credit is positive and no more than its share.
  void Settle(uint32_t member);
  void Link(uint32_t member);
  void Unlink(uint32_t member);
  uint32_t NextBucketWithMembers(uint32_t from) const;

  const int64_t quantum_;
  const Nanoseconds expects_back_;
  std::vector<Member> members_;
  std::array<uint32_t, kNumBuckets> buckets_;             // first member of each
  std::array<uint64_t, kNumBuckets / 64> has_members_{};  // a bit per bucket
  uint64_t summary_ = 0;                                  // a bit per word of has_members_
  uint64_t round_ = 0;
  uint32_t num_joined_ = 0;
  uint32_t num_expected_ = 0;
  std::optional<TimePoint> waits_until_;
};

}  // namespace tally::scheduler
