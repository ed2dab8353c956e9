/* Says that this program's next work on the GPU comes soon, so that Tally can take the GPU from best-effort programs
 * before it comes: a switch between programs takes 0.2 ms, which a service of high priority need not wait for then.
 * docs/arrival-hints.md says when that is worth it; tally-run --hints finds it out by itself for many programs.
 *
 * Header-only, C and C++, nothing to link with but libdl (part of libc since glibc 2.34). Without Tally, for best-effort
 * programs, and before the program's first CUDA call nothing happens. From Python: ctypes, the function
 * tally_expect_work of libcuda.so.1. Thread-safe.
 *
 *   request = receive();
 *   tally_expect_work(400);       what follows takes 0.4 ms until the first kernel
 *   input = tokenise(request);
 *   kernel<<<blocks, threads, 0, stream>>>(input);
 */
#pragma once

#include <errno.h>

#include "segments.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In `microseconds` from now this program's next work on the GPU comes, if it has none there at present. Worth it from
 * about 200 on. What does not come has cost best-effort programs a switch: of those Tally believes only so many.
 * 0, or EINVAL: more than a second. */
static TALLY_UNUSED_ int tally_expect_work(unsigned long microseconds) {
  static void* known;
  int (*expect)(unsigned long);
  if (!tally_find_("tally_expect_work", &known, &expect, sizeof(expect))) return 0;
  return expect(microseconds);
}

#ifdef __cplusplus
}
#endif
