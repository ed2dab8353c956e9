/* What a task of a CUDA graph touches, said by the program that captures it: so that tally-run --graphs spread can give
 * it to any GPU, even if Tally cannot find that out itself (calls of cuBLAS and cuSOLVER, which have no PTX).
 * docs/task-graphs.md, "Declaring tasks", says what is promised by a declaration.
 *
 * Header-only, C and C++, nothing to link with but libdl (part of libc since glibc 2.34). Without Tally, without
 * --graphs spread, outside of a capture and before the program's first CUDA call nothing happens.
 *
 *   tallyTaskRegion regions[] = {{a, row_bytes, rows, pitch, TALLY_READS},
 *                                {c, row_bytes, rows, pitch, TALLY_READS | TALLY_WRITES}};
 *   tallyTaskBegin(stream, regions, 2);
 *   cublasDgemm(...);
 *   tallyTaskEnd(stream);
 */
#pragma once

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TALLY_READS 1
#define TALLY_WRITES 2
#define TALLY_SCRATCH 4

/* Rows of device memory at equal distances. A plain range: rows = 1, any pitch. Nothing if it has no bytes. */
typedef struct tallyTaskRegion {
  const void* address;
  size_t row_bytes;
  size_t rows;
  size_t pitch; /* bytes from the start of a row to that of the next */
  int access;   /* TALLY_READS, TALLY_WRITES, or both; or TALLY_SCRATCH: nobody wants what is there before or after */
} tallyTaskRegion;

/* Of one task; one that is read and written counts twice. */
#define TALLY_MOST_REGIONS 64

#define TALLY_TASK_UNUSED_ __attribute__((unused))

/* Copies the address of a function of Tally's libcuda.so.1 to `function`. 0: there is none, or the program has not
 * loaded the library yet. `known`: what was found before; its own address if the library has no such function. */
static TALLY_TASK_UNUSED_ int tally_task_find_(const char* name, void** known, void* function, size_t size) {
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

/* All that comes into the graph that `stream` (a cudaStream_t or CUstream) is being captured into, from here to
 * tallyTaskEnd, is one task. It reads and writes no memory but these regions; workspaces of libraries are scratch. It
 * runs on one GPU, one node behind the other, in the order of the capture. What it writes, it may also leave as it was.
 * 0, E2BIG: too many regions, EINVAL: a region that ends behind the last address, an access that is none, or a task
 * that has begun on the stream and not ended. After an error nothing is declared. */
static TALLY_TASK_UNUSED_ int tallyTaskBegin(void* stream, const tallyTaskRegion* regions, size_t num_regions) {
  static void* known;
  int (*begin)(void*, const tallyTaskRegion*, size_t);
  if (!tally_task_find_("tally_task_begin", &known, &begin, sizeof(begin))) return 0;
  return begin(stream, regions, num_regions);
}

/* 0, or EINVAL: no task has begun on the stream in this capture. */
static TALLY_TASK_UNUSED_ int tallyTaskEnd(void* stream) {
  static void* known;
  int (*end)(void*);
  if (!tally_task_find_("tally_task_end", &known, &end, sizeof(end))) return 0;
  return end(stream);
}

#ifdef __cplusplus
}
#endif
