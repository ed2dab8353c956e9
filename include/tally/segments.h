/* What a thread's next kernel launch touches, said by the program: so that tally-run --window can run it beside others
 * even if Tally cannot find that out itself (library code without PTX). docs/window.md, "Declaring what a launch
 * touches", says what is promised by a declaration.
 *
 * Header-only, C and C++, nothing to link with but libdl (part of libc since glibc 2.34). Without Tally, without a
 * window, and before the program's first CUDA call nothing happens. From Python: ctypes, the functions
 * tally_declare_segments and tally_declare_opaque of libcuda.so.1. Thread-safe: each thread declares its own launches.
 *
 *   tally_segment in = {x, n * sizeof(float), 1, 0}, out = {y, n * sizeof(float), 1, 0};
 *   tally_segments(&in, 1, &out, 1);
 *   kernel<<<blocks, threads, 0, stream>>>(y, x, n);
 */
#pragma once

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of device memory at equal distances. A plain range: rows = 1, any pitch. Nothing if it has no bytes. */
typedef struct tally_segment {
  const void* address;
  size_t row_bytes;
  size_t rows;
  size_t pitch; /* bytes from the start of a row to that of the next */
} tally_segment;

/* Of one launch, read and written. */
#define TALLY_MOST_SEGMENTS 64

#define TALLY_UNUSED_ __attribute__((unused))

/* Copies the address of a function of Tally's libcuda.so.1 to `function`. 0: there is none, or the program has not
 * loaded the library yet. `known`: what was found before; its own address if the library has no such function. */
static TALLY_UNUSED_ int tally_find_(const char* name, void** known, void* function, size_t size) {
  void* found = __atomic_load_n(known, __ATOMIC_RELAXED);
  if (found == NULL) {
    void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) return 0;
    found = dlsym(library, name);
    dlclose(library); /* it stays loaded: the program holds it */
    if (found == NULL) found = (void*)known;
    __atomic_store_n(known, found, __ATOMIC_RELAXED);
  }
  memcpy(function, &found, size);
  return found != (void*)known;
}

/* This thread's next kernel launch reads no memory but `reads` and writes none but `writes`; memory that is both read
 * and written is in both. It holds for that launch, even if the launch fails; another declaration before that takes its
 * place. Whatever else the thread calls in between changes nothing.
 * 0, E2BIG: too many segments, EINVAL: a segment that ends behind the last address, ENOMEM. After an error nothing is
 * declared: the launch is what Tally finds it to be. */
static TALLY_UNUSED_ int tally_segments(const tally_segment* reads, size_t num_reads, const tally_segment* writes,
                                        size_t num_writes) {
  static void* known;
  int (*declare)(const tally_segment*, size_t, const tally_segment*, size_t);
  if (!tally_find_("tally_declare_segments", &known, &declare, sizeof(declare))) return 0;
  return declare(reads, num_reads, writes, num_writes);
}

/* This thread's next kernel launch may do anything: nothing runs beside it. For kernels that do more than their PTX
 * says, as far as their memory is concerned. 0 or ENOMEM. */
static TALLY_UNUSED_ int tally_opaque(void) {
  static void* known;
  int (*declare)(void);
  if (!tally_find_("tally_declare_opaque", &known, &declare, sizeof(declare))) return 0;
  return declare();
}

#ifdef __cplusplus
}
#endif
