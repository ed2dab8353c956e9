// Compiled into the recording build of libcuda.so.1 only (tests/client-shim/recording): what generated
// client_entries.cc does around each exported function. The library that is shipped has none of this.
#pragma once

#include <cuda.h>

namespace tally::client_shim {

inline constexpr unsigned int kNumRecordedErrors = 1001;

// Notes in the file named by TALLY_RECORD_CALLS (one byte per row of driver_api.tsv, shared by all processes of a test)
// that the program called the function: bit 0 if it returned CUDA_SUCCESS, bit 1 if anything else. Without the variable
// nothing is noted. In the file named by TALLY_RECORD_ERRORS it counts how often each result was returned: an array of
// kNumRecordedErrors 32-bit numbers, the last for all that are greater. Returns `result`.
CUresult RecordCall(unsigned int symbol_index, CUresult result);

}  // namespace tally::client_shim

#define TALLY_ENTRY(index, ...) ::tally::client_shim::RecordCall(index, __VA_ARGS__)
