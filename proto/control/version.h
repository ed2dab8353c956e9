// Which build this is.
#pragma once

#include <string>
#include <string_view>

namespace tally::control {

inline constexpr std::string_view kVersion = TALLY_VERSION;

// "tallyd 0.1.0 (protocol 1, driver table 0123456789abcdef)"
std::string VersionLine(std::string_view program);

}  // namespace tally::control
