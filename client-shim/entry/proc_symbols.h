// The exported symbols that cuGetProcAddress hands out, row by row as in getproc.inc. In a file of its own because
// their types are of no interest here and cuda.h declares them with some.
#pragma once

namespace tally::client_shim {

extern void* const kProcSymbols[];

}  // namespace tally::client_shim
