// The side of AFL++ that lives in the process under test, for plain g++.
//
// AFL++'s own compiler is not used: its plugin wants the very build of GCC that it was made with. Instead the code is
// compiled with -fsanitize-coverage=trace-pc, afl_target.cc counts the edges, and AFL++'s runtime object
// (afl-compiler-rt-64.o) does the rest. The declarations below are that object's interface.
#pragma once

#include <cstddef>
#include <string_view>

namespace tally::fuzz {

// True once per input that the fuzzer has; it restarts the process after so many.
bool NextInput(unsigned inputs_per_process);
// The input. Valid until the next one is asked for.
std::string_view Input();

}  // namespace tally::fuzz
