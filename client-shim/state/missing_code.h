// Why a device takes none of the code that a program offers: CUDA has a number for it (209) and says nothing more.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "proto/shm/records_context_abi.h"

namespace tally::client_shim {

// What a program offers: containers, cubins and texts, each whole.
using OfferedCode = std::vector<std::span<const std::byte>>;

// One sentence: what the device runs, which architectures there are, and what to do.
std::string MissingCodeSentence(const shm::DeviceDescription& device, const OfferedCode& offered);

// Says it on stderr, once per process: a framework would otherwise say it for each of its kernels.
void ExplainMissingCode(const shm::DeviceDescription& device, const OfferedCode& offered);

}  // namespace tally::client_shim
