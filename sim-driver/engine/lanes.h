// How operations read and write registers, and templates for the plain ones.
#pragma once

#include <bit>
#include <cstring>

#include "sim-driver/engine/warp.h"

namespace tally::sim_driver {

template <typename T>
inline const T* Source(const Warp& w, uint32_t operand) {
  return reinterpret_cast<const T*>(w.bases[operand & 1] + operand);
}
template <typename T>
inline T* Target(const Warp& w, uint32_t operand) {
  return reinterpret_cast<T*>(w.bases[0] + operand);
}
// Predicates: one bit per lane.
inline uint32_t SourcePredicate(const Warp& w, uint32_t operand) { return *Source<uint32_t>(w, operand); }
inline void SetPredicate(const Warp& w, uint32_t operand, uint32_t value) {
  uint32_t* p = Target<uint32_t>(w, operand);
  *p = (*p & ~w.mask) | (value & w.mask);
}

// Runs `body(lane)` for the active lanes. With all active the loop is one that the compiler can vectorise; lanes are
// independent, and a destination is either exactly a source or disjoint from it.
template <typename Body>
inline void ForLanes(uint32_t mask, Body body) {
  if (mask == kFullMask) {
#pragma GCC ivdep
    for (uint32_t lane = 0; lane < kLanes; ++lane) body(lane);
  } else {
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) body(static_cast<uint32_t>(std::countr_zero(rest)));
  }
}

// d = function(a), function(a, b), function(a, b, c).
template <typename D, typename A, auto kFunction>
void Unary(Warp& w, const Instruction& i) {
  D* d = Target<D>(w, i.d);
  const A* a = Source<A>(w, i.a);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = static_cast<D>(kFunction(a[l])); });
}
template <typename D, typename A, typename B, auto kFunction>
void Binary(Warp& w, const Instruction& i) {
  D* d = Target<D>(w, i.d);
  const A* a = Source<A>(w, i.a);
  const B* b = Source<B>(w, i.b);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = static_cast<D>(kFunction(a[l], b[l])); });
}
template <typename D, typename A, typename B, typename C, auto kFunction>
void Ternary(Warp& w, const Instruction& i) {
  D* d = Target<D>(w, i.d);
  const A* a = Source<A>(w, i.a);
  const B* b = Source<B>(w, i.b);
  const C* c = Source<C>(w, i.c);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = static_cast<D>(kFunction(a[l], b[l], c[l])); });
}

}  // namespace tally::sim_driver
