// The kilobyte of shared memory that every block has for the system's software (cooperative groups keep the scratch of
// their larger tiles there): shared addresses far above a block's own, zero when the block starts.
#pragma once

#include <cstdint>

namespace tally::sim_driver {

inline constexpr uint32_t kReservedSharedOffset = 0xf00000;
inline constexpr uint32_t kReservedSharedBytes = 1024;

// Where it lies behind a block's `shared_bytes`.
inline uint64_t ReservedSharedStart(uint64_t shared_bytes) { return (shared_bytes + 127) / 128 * 128; }

}  // namespace tally::sim_driver
