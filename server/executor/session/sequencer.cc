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
  if (sequence_number >= kMostNumbers) return Outcome::kNonsense;
  const uint64_t mine = sequence_number * kHolders;
  const auto is_before = [mine](uint64_t state) { return state < mine || state == mine + kBorrowed; };
  int spins = SpinPauses();
  int yields = MaySpinLong() ? kYields : 0;
  for (;;) {
    // Looking first leaves the cache line with whoever holds the sequencer.
    uint64_t seen = state_.load(std::memory_order_acquire);
    if (seen == mine && state_.compare_exchange_strong(seen, mine + kHeld, std::memory_order_acq_rel)) {
      return Outcome::kMine;
    }
    if (seen > mine && !is_before(seen)) return Outcome::kNonsense;
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
    if (is_before(state_.load(std::memory_order_seq_cst)) && !stop.load(std::memory_order_seq_cst)) {
      FutexWait(doorbell_, bell, std::chrono::hours(1));
    }
    num_sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
}

void Sequencer::Pass(uint64_t sequence_number) { LetNextGo((sequence_number + 1) * kHolders); }

bool Sequencer::TryBorrow() {
  uint64_t seen = state_.load(std::memory_order_acquire);
  return seen % kHolders == kFree && state_.compare_exchange_strong(seen, seen + kBorrowed, std::memory_order_acq_rel);
}

// Nobody but the borrower changes it meanwhile.
void Sequencer::Return() { LetNextGo(state_.load(std::memory_order_relaxed) - kBorrowed); }

void Sequencer::LetNextGo(uint64_t state) {
  state_.store(state, std::memory_order_seq_cst);
  if (num_skipped_.load(std::memory_order_seq_cst) != 0) {
    const std::lock_guard lock(mutex_);
    PassSkipped();
  }
  if (num_sleepers_.load(std::memory_order_seq_cst) != 0) WakeAll();
}

void Sequencer::PassSkipped() {
  uint64_t state = state_.load(std::memory_order_seq_cst);
  while (state % kHolders == kFree && !skipped_.empty() && *skipped_.begin() == state / kHolders) {
    if (!state_.compare_exchange_strong(state, state + kHolders, std::memory_order_seq_cst)) continue;
    skipped_.erase(skipped_.begin());
    num_skipped_.fetch_sub(1, std::memory_order_seq_cst);
    state += kHolders;
  }
}

Sequencer::Outcome Sequencer::Skip(uint64_t sequence_number) {
  if (sequence_number >= kMostNumbers) return Outcome::kNonsense;
  {
    const std::lock_guard lock(mutex_);
    const uint64_t state = state_.load(std::memory_order_seq_cst);
    const bool was_used =
        sequence_number < state / kHolders || (sequence_number == state / kHolders && state % kHolders == kHeld);
    if (was_used) return Outcome::kNonsense;
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
