// Compiled without the instrumentation that it implements.
#include "tests/ptx-transforms/fuzz/afl_target.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>

extern "C" {
// Of afl-compiler-rt-64.o.
extern unsigned char* __afl_area_ptr;
extern unsigned char* __afl_fuzz_ptr;
extern unsigned int* __afl_fuzz_len;
int __afl_persistent_loop(unsigned int count);
void __afl_manual_init();
// Says that inputs may come through shared memory.
int __afl_sharedmem_fuzzing = 1;

// Called by the compiled code at every basic block. An edge is a pair of blocks; the program is not position
// independent, so an address is the same in every run.
void __sanitizer_cov_trace_pc() {
  static uint32_t previous = 0;
  auto address = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
  uint32_t here = ((address >> 2) * 0x9e3779b1u) >> 16;
  ++__afl_area_ptr[here ^ previous];
  previous = here >> 1;
}
}

namespace tally::fuzz {
namespace {

// afl-fuzz looks for these words in the program, to know what it can do.
const volatile char kDeferredStart[] = "##SIG_AFL_DEFER_FORKSRV##";
const volatile char kManyInputs[] = "##SIG_AFL_PERSISTENT##";

char read_input[1 << 20];
size_t read_bytes = 0;

}  // namespace

bool NextInput(unsigned inputs_per_process) {
  static bool is_started = false;
  if (!is_started) {
    is_started = true;
    (void)kDeferredStart[0];
    (void)kManyInputs[0];
    __afl_manual_init();
  }
  if (__afl_persistent_loop(inputs_per_process) == 0) return false;
  if (__afl_fuzz_ptr != nullptr) return true;
  read_bytes = 0;  // without afl-fuzz: from the standard input
  for (ssize_t got; (got = read(0, read_input + read_bytes, sizeof(read_input) - read_bytes)) > 0;)
    read_bytes += static_cast<size_t>(got);
  return true;
}

std::string_view Input() {
  if (__afl_fuzz_ptr == nullptr) return {read_input, read_bytes};
  return {reinterpret_cast<const char*>(__afl_fuzz_ptr), *__afl_fuzz_len};
}

}  // namespace tally::fuzz
