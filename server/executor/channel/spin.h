// How long to look before sleeping, in pauses of CpuRelax (about 40 ns each on current x86).
//
// With cores to spare a spinning server answers in about a microsecond; with few it only keeps the client from running.
#pragma once

#include <sched.h>

#include <thread>

#include "base/futex.h"

namespace tally::server {

inline int SpinPauses() {
  static const int pauses = [] {
    const unsigned cores = std::thread::hardware_concurrency();
    if (cores <= 1) return 0;
    if (cores <= 4) return 100;
    return 1000;
  }();
  return pauses;
}

// Whether a core may be kept busy for longer than that by one waiting thread.
inline bool MaySpinLong() { return SpinPauses() >= 1000; }

// Between two looks of a thread that polls: about a microsecond or less, and whoever wants its core gets it.
inline void PauseBetweenPolls(int num_pauses = 20) {
  for (int i = 0; i < num_pauses; ++i) CpuRelax();
  ::sched_yield();
}

}  // namespace tally::server
