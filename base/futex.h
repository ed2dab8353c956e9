// Sleeping on a 32-bit word that may live in memory shared with another process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tally {

// Sleeps while `word` still is `expected`, at most `timeout`. Returns false only if the time ran out. May return early
// for no reason: callers loop on their own condition.
bool FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, std::chrono::nanoseconds timeout);
// Wakes up to `count` sleepers of `word`, in any process.
void FutexWake(const std::atomic<uint32_t>& word, int count);
// One pause of a spinning wait.
inline void CpuRelax() { __builtin_ia32_pause(); }

}  // namespace tally
