// Fetching a cache line before it is needed. Never faults; the address need not be anything.
#pragma once

namespace tally {

// To be written: takes the line away from the core that has it. (The compiler's builtin does that only for processors
// newer than our baseline; older ones do nothing here.)
inline void PrefetchForWrite(const void* address) {
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
}

}  // namespace tally
