// What loads, stores and atomics share.
#pragma once

#include "sim-driver/engine/lowering.h"
#include "sim-driver/engine/memory_view.h"

namespace tally::sim_driver {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// Device code may race with other blocks and the host (that is what volatile, atomics and fences are for), so every
// access of memory that others see is a relaxed atomic: a plain move on this CPU, and no undefined behaviour in C++.
template <typename T>
inline T AtomicLoad(const T* from) {
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}
template <typename T>
inline void AtomicStore(T* to, T value) {
  __atomic_store_n(to, value, __ATOMIC_RELAXED);
}

// From the modifiers (shared, shared::cta, ...); generic if there is none.
Space SpaceOf(const Lowering& l, StateSpace* state_space);
// Faults if a + offset is not a multiple of `align`.
void EmitAlignmentCheck(Lowering& l, VirtualOperand address, int64_t offset, uint32_t align);

}  // namespace tally::sim_driver
