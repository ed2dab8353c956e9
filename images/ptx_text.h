// What can be told of PTX text without a parser (ptx-transforms has one): what it is for, which kernels it defines,
// whether its assembler may choose how it rounds. For untrusted text; linear time, no allocation.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace tally::images {

struct PtxHead {
  uint16_t version_major = 0;  // .version
  uint16_t version_minor = 0;
  uint32_t target = 0;  // .target: 90 for sm_90 and sm_90a
  char suffix = 0;      // 'a', 'f' or none
};
// Of text with the three directives that PTX begins with, in 64 bits. kInvalidArgument: it has not.
Result<PtxHead> ReadPtxHead(std::string_view ptx);

// Whether a directive .entry with that name is in there.
bool DefinesKernel(std::string_view ptx, std::string_view name);

// Whether some multiplication of floats names no rounding: an assembler may make one instruction of it and an addition,
// and does so or not depending on its option --fmad, so that text alone does not say what the results are.
bool HasContractibleMultiply(std::string_view ptx);

}  // namespace tally::images
