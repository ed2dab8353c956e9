// What stands in front of each line of base/log.h, for a reader that wants it: journald's levels.
#pragma once

#include <array>

#include "base/log.h"

namespace tally {

using LogPrefixes = std::array<const char*, 4>;  // by LogLevel

// `prefixes` must live for ever. Call at the start of main, before there are threads.
void SetLogPrefixes(const LogPrefixes* prefixes);
// Never null; for lines that are printed otherwise.
const char* LogPrefix(LogLevel level);

}  // namespace tally
