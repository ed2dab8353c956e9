// How people write amounts: "8G" of memory, "30%" of a GPU's time. By tally-run, by the client's library (TALLY_MEMORY,
// TALLY_SHARE) and by tallyctl alike. Not by the locale of the program.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tally::control {

// The number in front of a unit; `*rest` is the unit. nullopt: there is none, or it is negative.
inline std::optional<double> LeadingNumber(std::string_view text, std::string_view* rest) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !(number >= 0)) return std::nullopt;
  *rest = text.substr(static_cast<size_t>(end - text.data()));
  return number;
}

// "8G", "1.5 GiB", "512m", "1000": bytes; a unit is a power of 1024. nullopt: that is no size, or it is 0, or too
// large.
inline std::optional<uint64_t> ParseBytes(std::string_view text) {
  std::string_view unit;
  const auto number = LeadingNumber(text, &unit);
  if (!number) return std::nullopt;
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  double factor = 1;
  if (!unit.empty() && unit != "b" && unit != "B") {
    const size_t power = std::string_view("kmgt").find(static_cast<char>(unit.front() | 0x20));
    if (power == std::string_view::npos) return std::nullopt;
    for (size_t i = 0; i <= power; ++i) factor *= 1024;
    unit.remove_prefix(1);
    if (unit.starts_with('i')) unit.remove_prefix(1);
    if (!unit.empty() && unit != "b" && unit != "B") return std::nullopt;
  }
  const double bytes = *number * factor;
  if (!(bytes >= 1) || bytes >= 0x1p62) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

// "30%", "30", "12.5%": per cent, as a part of 1. nullopt: that is no share, or it is none or more than all.
inline std::optional<double> ParseShare(std::string_view text) {
  std::string_view unit;
  const auto percent = LeadingNumber(text, &unit);
  if (!percent || (!unit.empty() && unit != "%") || *percent < 0.1 || *percent > 100) return std::nullopt;
  return *percent / 100;
}

}  // namespace tally::control
