/* Says that this program's next work on the GPU comes soon, so that Tally can take the GPU from best-effort programs
 * before it comes: a switch between programs takes 0.2 ms, which a service of high priority need not wait for then.
 * docs/arrival-hints.md says when that is worth it; tally-run --hints finds it out by itself for many programs.
 *
 * Header-only, C and C++, nothing to link with but libdl (part of libc since glibc 2.34). Without Tally, for
 * best-effort programs, and before the program's first CUDA call nothing happens. From Python: ctypes, the function
 * tally_expect_work of libcuda.so.1. Thread-safe.
 *
 *   request = receive();
 *   tally_expect_work(400);       what follows takes 0.4 ms until the first kernel
 *   input = tokenise(request);
 *   kernel<<<blocks, threads, 0, stream>>>(input);
 */
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In `microseconds` from now this program's next work on the GPU comes, if it has none there at present. Worth it from
 * about 200 on. What does not come has cost best-effort programs a switch: of those Tally believes only so many.
 * 0, or EINVAL: more than a second. */
static __attribute__((unused)) int tally_expect_work(unsigned long microseconds) {
  static void* known; /* the library's function; its own address: the library has none */
  int (*expect)(unsigned long);
  void* found = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (found == NULL) {
    void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) return 0; /* not loaded yet */
    found = dlsym(library, "tally_expect_work");
    dlclose(library); /* it stays loaded: the program holds it */
    if (found == NULL) found = (void*)&known;
    __atomic_store_n(&known, found, __ATOMIC_RELAXED);
  }
  if (found == (void*)&known) return 0;
  memcpy(&expect, &found, sizeof(expect));
  return expect(microseconds);
}

#ifdef __cplusplus
}
#endif
