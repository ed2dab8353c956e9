// Machine code in, the same machine code with a gate in front of every kernel out (proto/device/gate_abi.h).
//
// A kernel so changed behaves as before when launched with a GateParameters of zeros behind its own parameters. Pure
// functions: no GPU, no files, no threads; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace tally::cubin_transforms {

struct GatedKernel {
  std::string name;              // mangled
  uint32_t parameter_bytes = 0;  // of its own parameters, up to the end of the last
  uint32_t hidden_offset = 0;    // where its GateParameters are expected among them; they are its last parameter
  uint32_t num_parameters = 0;   // its own: the ordinal of the hidden one
  std::string refusal;           // not empty: the kernel is as it was, and this is why. "has entry fragments ..."
  bool is_gated() const { return refusal.empty(); }
};

struct GatedImage {
  std::vector<std::byte> cubin;      // byte for byte the original if no kernel could be gated
  std::vector<GatedKernel> kernels;  // in the order of the symbol table
  size_t num_gated() const;
};

struct GateOptions {
  // Kernels that use tensor memory (tcgen05, from sm_100 on) have a piece of the driver's own code in front of theirs,
  // which runs before the gate. That should do no harm, but nobody has seen it on such a GPU.
  bool accepts_entry_fragments = false;
};

// The cubin may be hostile. What is not certain is refused kernel by kernel; VerifyGated has been asked about the
// result. kInvalidArgument: not a cubin; kDataLoss: damaged; kUnimplemented: no kernel of it can be gated, for one
// reason.
Result<GatedImage> AddGates(std::span<const std::byte> cubin, const GateOptions& options = {});

// Whether a linker has to make something of it that a GPU runs. AddGates leaves it alone and takes what comes of that.
bool IsRelocatable(std::span<const std::byte> cubin);

// Changes whenever AddGates may make something else of a cubin for that architecture (90: sm_90): part of the key of
// every cache of gated cubins.
std::string GatesVersion(uint32_t arch);

// The cubin that a device of that capability (90 for 9.0) runs from an image of any shape that AddGates understands: a
// cubin itself, or the one of a container. Decompressed, not gated. kNotFound: no machine code for the device;
// kUnimplemented: more than one candidate, so it is open which one a driver would take.
Result<std::vector<std::byte>> CubinForDevice(std::span<const std::byte> image, uint32_t capability);

// OK if `gated` is `original` with gates and nothing else: the same sections with the same contents except for the
// gated kernels' code, constants and records, in which only what a gate needs was added. Shares no code with AddGates
// but the ELF reader. kFailedPrecondition says what is wrong.
Status VerifyGated(std::span<const std::byte> original, std::span<const std::byte> gated);

}  // namespace tally::cubin_transforms
