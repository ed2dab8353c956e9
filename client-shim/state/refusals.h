// What Tally does not offer, said to the program, to its user and to the executor. Thread-safe.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tally::client_shim {

// A call that Tally does not offer (verdict `refused`), by its row in the table: CUDA_ERROR_NOT_SUPPORTED, one line in
// the log the first time; the executor counts all of them. Needs no initialisation, as many programs probe before
// cuInit.
CUresult Refuse(uint32_t symbol_index);
// The same for a use of a call that is offered otherwise: `what` is a literal, "cuX: why" with a row's name. Logged
// once per literal.
CUresult RefuseUse(const char* what);
// The executor says that this program and another one in it are ranks of one NCCL communicator, which would hang.
CUresult RefuseSecondRank();

}  // namespace tally::client_shim
