// Whether launches of a program's stream are gathered, so that those that touch different memory run side by side
// (docs/window.md). Said by the program, constant for its session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace tally::control {

// Numbered for good: part of a client's hello (proto/shm/handshake_abi.h).
enum class WindowMode : uint16_t {
  kOff = 0,
  kShadow = 1,  // launches go in program order; what could have run side by side is counted
  kOn = 2,
};

inline constexpr const char* kWindowModeNames[] = {"off", "shadow", "on"};

// Of a number that came from elsewhere, too.
constexpr const char* NameOf(WindowMode mode) {
  const auto index = static_cast<size_t>(mode);
  return index < std::size(kWindowModeNames) ? kWindowModeNames[index] : "unknown";
}

// Nothing: it is no mode.
constexpr std::optional<WindowMode> ParseWindowMode(std::string_view name) {
  for (size_t i = 0; i < std::size(kWindowModeNames); ++i) {
    if (name == kWindowModeNames[i]) return static_cast<WindowMode>(i);
  }
  return std::nullopt;
}

}  // namespace tally::control
