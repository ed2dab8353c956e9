#include "server/executor/session/sequencer.h"

#include <chrono>

#include "base/futex.h"
#include "server/executor/channel/spin.h"

namespace tally::server {
namespace {

// Whoever has the sequence number before ours may have to be woken up first, which takes up to 100 us: sleeping too,
// and being woken up by it, would double that. About 200 us in all.
constexpr int kYields = 300;
constexpr int kPausesPerYield = 8;

}  // namespace

Sequencer::Outcome Sequencer::Take(uint64_t sequence_number, const std::atomic<bool>& stop) {
  const uint64_t free_state = sequence_number * 2;
  if (sequence_number >= uint64_t{1} << 62) return Outcome::kNonsense;
  int spins = SpinPauses();
  int yields = MaySpinLong() ? kYields : 0;
  for (;;) {
    // Looking first leaves the cache line with whoever holds the sequencer.
    uint64_t seen = state_.load(std::memory_order_acquire);
    if (seen == free_state && state_.compare_exchange_strong(seen, free_state + 1, std::memory_order_acq_rel)) {
      return Outcome::kMine;
    }
    if ((seen & ~kBorrowed) > free_state) return Outcome::kNonsense;
    if (stop.load(std::memory_order_acquire)) return Outcome::kStopped;
    if (spins-- > 0) {
      CpuRelax();
      continue;
    }
    if (yields-- > 0) {
      PauseBetweenPolls(kPausesPerYield);
      continue;
    }
    num_sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t bell = doorbell_.load(std::memory_order_seq_cst);
    const uint64_t state = state_.load(std::memory_order_seq_cst);
    const bool must_wait = state < free_state || (state & kBorrowed) != 0;
    if (must_wait && !stop.load(std::memory_order_seq_cst)) {
      FutexWait(doorbell_, bell, std::chrono::hours(1));
    }
    num_sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
}

void Sequencer::Pass(uint64_t sequence_number) {
  state_.store(sequence_number * 2 + 2, std::memory_order_seq_cst);
  LetGoOn();
}

bool Sequencer::TryBorrow() {
  uint64_t state = state_.load(std::memory_order_relaxed);
  return (state & (kBorrowed | 1)) == 0 &&
         state_.compare_exchange_strong(state, state | kBorrowed, std::memory_order_acq_rel);
}

void Sequencer::Return() {
  state_.fetch_and(~kBorrowed, std::memory_order_seq_cst);
  LetGoOn();
}

void Sequencer::LetGoOn() {
  if (num_skipped_.load(std::memory_order_seq_cst) != 0) {
    const std::lock_guard lock(mutex_);
    PassSkipped();
  }
  if (num_sleepers_.load(std::memory_order_seq_cst) != 0) WakeAll();
}

void Sequencer::PassSkipped() {
  uint64_t state = state_.load(std::memory_order_seq_cst);
  while ((state & 1) == 0 && !skipped_.empty() && *skipped_.begin() == state / 2) {
    if (!state_.compare_exchange_strong(state, state + 2, std::memory_order_seq_cst)) continue;
    skipped_.erase(skipped_.begin());
    num_skipped_.fetch_sub(1, std::memory_order_seq_cst);
    state += 2;
  }
}

Sequencer::Outcome Sequencer::Skip(uint64_t sequence_number) {
  if (sequence_number >= uint64_t{1} << 62) return Outcome::kNonsense;
  {
    const std::lock_guard lock(mutex_);
    if (sequence_number * 2 < StateBesideVisits()) return Outcome::kNonsense;
    if (skipped_.size() >= kMaxSkipped || !skipped_.insert(sequence_number).second) return Outcome::kNonsense;
    num_skipped_.fetch_add(1, std::memory_order_seq_cst);
    PassSkipped();
  }
  if (num_sleepers_.load(std::memory_order_seq_cst) != 0) WakeAll();
  return Outcome::kMine;
}

void Sequencer::WakeAll() {
  doorbell_.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(doorbell_, INT32_MAX);
}

}  // namespace tally::server
