// Two functions of libtally-sim-driver.so that CUDA does not have: a test says which memory its next launches may
// touch, and asks which accesses were elsewhere. Nothing is prevented and no result changes; launches become slower.
//
// For programs that declare what their tasks touch, or compute it (docs/window.md): a wrong box is found by the PTX
// line that proves it wrong.
#pragma once

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// `rows` pieces of `row_bytes` bytes, the first at `address`, each `pitch` bytes behind the one before.
typedef struct TallyBox {
  uint64_t address;
  uint64_t row_bytes;
  uint64_t pitch;  // not looked at if rows is 1
  uint64_t rows;
  uint32_t may_read;   // 0 or 1
  uint32_t may_write;  // 0 or 1; atomics write
} TallyBox;

// Of all launches that the calling thread makes from now on, or captures: they may touch these boxes. With num_boxes 0
// they may touch nothing. A null `boxes` ends it. The boxes are copied. INVALID_VALUE for more than kTallyMaxBoxes, or
// one that wraps around the end of the addresses.
CUresult cuTallyDeclareBoxes(const TallyBox* boxes, size_t num_boxes);

// What was touched outside since the last call, by all threads' launches that have ended: a line for each place in a
// kernel, "kernel K, PTX line 42 '...': read of 4 bytes at 0x7c0000000200 is outside the declared boxes (17 times)".
// Writes at most `capacity` bytes, without a NUL, and how many it wrote. Lines beyond kTallyMaxPlaces are counted in a
// last one.
CUresult cuTallyTakeOutside(char* text, size_t capacity, size_t* size);

enum { kTallyMaxBoxes = 1 << 20, kTallyMaxPlaces = 1000 };

#ifdef __cplusplus
}
#endif
