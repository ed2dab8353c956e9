#include "bench/scheduler-sim/allocation_count.h"

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace tally::scheduler_sim {
uint64_t num_allocations = 0;
int64_t allocated_bytes = 0;
}  // namespace tally::scheduler_sim

namespace {
void Release(void* memory) {
  tally::scheduler_sim::allocated_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
}  // namespace

void* operator new(size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  ++tally::scheduler_sim::num_allocations;
  tally::scheduler_sim::allocated_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  return memory;
}
void operator delete(void* memory) noexcept { Release(memory); }
void operator delete(void* memory, size_t) noexcept { Release(memory); }
