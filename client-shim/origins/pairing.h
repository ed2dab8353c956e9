// Keeping PTX at its birth: programs hand the driver machine code; where it is known which PTX it was made from, both
// travel to the executor in one fat binary, so that kernels can be given other forms there (docs/preemption.md). The
// front desk of this folder.
//
// Invisible to the program: the driver takes the machine code, which is for exactly its device. Off with
// TALLY_KEEP_PTX=0 in the program's environment, and where the executor has no use for PTX. Never on the launch path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client-shim/origins/ptx_origins.h"

namespace tally::client_shim {

// What this process has learnt; made at the first call, never destroyed, whole in a fork's child.
PtxOrigins& Origins();

// As the environment says now, and the executor, as far as it is known already: programs compile before cuInit.
bool IsPtxKept();

// A container of `cubin` and the PTX that it was made from. Empty if that is not known, or if the pair could behave in
// another way than the cubin: it must be linked, for exactly the architecture of all devices (`capabilities`, 90 for
// 9.0) so that the driver never has to take the PTX, and all of its kernels must be in a text that is for no newer one.
// `path`: the file that it was read from, if any.
std::vector<std::byte> PairWithPtx(std::span<const std::byte> cubin, const std::string& path,
                                   std::span<const uint32_t> capabilities);

}  // namespace tally::client_shim
