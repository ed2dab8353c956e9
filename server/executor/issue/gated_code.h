// A program's image with a gate in front of its kernels, to be loaded instead of the original: the variables of the
// program are then the only ones there are. Launched with zeros for GateParameters every kernel does what it did.
//
// Pure functions but for the linker, thread-safe; a millisecond for large images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "server/executor/issue/variant_source.h"

namespace tally::server {

struct KernelGate {
  uint32_t hidden_offset = 0;    // of device::GateParameters, the kernel's last parameter
  bool gates_clusters = false;   // it may be launched with clusters, or behind a launch that has not ended
  bool waits_for_blocks = true;  // as far as is known (KernelVariant::waits_for_blocks)
};

struct GatedCode {
  std::vector<std::byte> image;                           // for the driver, which may keep pointers into it
  std::unordered_map<std::string, KernelGate> gates;      // by kernel; those that are not in it are as they were
  std::unordered_map<std::string, std::string> refusals;  // why, by kernel
};

// What comes of relocatable machine code: cuBLAS and cuDNN leave some of theirs to the driver to link when it is
// loaded. Null: nothing is linked.
using CubinLinker = std::function<Result<std::vector<std::byte>>(std::span<const std::byte> relocatable)>;

// From the machine code for devices of architecture `arch` (90: sm_90), linked first if need be. kNotFound: there is
// none, or no kernel of it can be gated; else what the linker or cubin-transforms says.
Result<GatedCode> GateMachineCode(std::span<const std::byte> image, uint32_t arch, const CubinLinker& link);
// From its PTX: for the software driver, where everything else can be tested so.
Result<GatedCode> GateText(std::span<const std::byte> image, uint32_t arch);

// For the disk, and back. kDataLoss: not what Serialize made.
std::vector<std::byte> Serialize(const GatedCode& code);
Result<GatedCode> DeserializeGatedCode(std::span<const std::byte> bytes);

}  // namespace tally::server
