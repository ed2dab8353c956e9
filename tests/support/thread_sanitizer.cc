// What the thread sanitizer is not to report, in every test of that build.
//
// The software GPU is not instrumented there: of what it does the sanitizer sees calls such as memmove and delete, but
// not the atomics that order them with what others do. A GPU's own accesses are not seen either.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:libtally-sim-driver.so\n"; }
