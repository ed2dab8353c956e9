// Writes fat binary containers (fat_container.h has the layout), for the process whose code it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "images/ptx_text.h"

namespace tally::images {

// A container of a cubin for `arch` (90: sm_90) and of the PTX that it was made from, neither of them compressed, as
// `fatbinary` writes it. A driver takes the cubin on a device of exactly that architecture.
std::vector<std::byte> WriteCubinWithPtx(std::span<const std::byte> cubin, uint32_t arch, std::string_view ptx,
                                         const PtxHead& head);

}  // namespace tally::images
