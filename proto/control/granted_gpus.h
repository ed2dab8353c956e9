// How grants name GPUs: by UUID as nvidia-smi shows it, or by the number that a program without a grant knows it by.
//
// What a number or a name means is settled where the GPUs are counted: an executor that has started after one was lost
// counts those behind it differently.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/control/session_figures.h"

namespace tally::control {

inline constexpr size_t kMaxGrantedGpus = 16;                                       // of one grant
inline constexpr size_t kGpuNameBytes = 40;                                         // "GPU-" and a UUID
inline constexpr size_t kGrantedGpusBytes = (kGpuNameBytes + 1) * kMaxGrantedGpus;  // commas, and NUL at the end

using GpuUuid = std::array<uint8_t, 16>;

inline std::string NameOfGpu(std::span<const uint8_t> uuid) {
  std::string name = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) name += '-';
    name += fmt::format("{:02x}", uuid[i]);
  }
  return name;
}

// nullopt: it is no number of a GPU.
inline std::optional<size_t> NumberOfGpu(std::string_view name) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool is_number = error == std::errc() && end == name.data() + name.size() && !name.empty();
  return is_number && number < kMostGpus ? std::optional(number) : std::nullopt;
}

// Whether it can name a GPU of some machine.
inline bool IsNameOfGpu(std::string_view name) {
  if (NumberOfGpu(name)) return true;
  if (!name.starts_with("GPU-") || name.size() != kGpuNameBytes) return false;
  for (size_t i = 4; i < name.size(); ++i) {
    const bool is_dash = i == 12 || i == 17 || i == 22 || i == 27;
    const bool is_digit = (name[i] >= '0' && name[i] <= '9') || (name[i] >= 'a' && name[i] <= 'f');
    if (is_dash ? name[i] != '-' : !is_digit) return false;
  }
  return true;
}

// For messages: JoinedGpus of at most kMaxGrantedGpus names fit into kGrantedGpusBytes.
inline std::string JoinedGpus(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ","));
}

// The ordinals of those that `joined` names among `gpus` (by ordinal), in its order, each once. What names none of them
// is left out. Nothing is named: all.
inline std::vector<int> OrdinalsOf(std::string_view joined, std::span<const GpuUuid> gpus) {
  std::vector<int> ordinals;
  const auto add = [&](size_t ordinal) {
    if (std::ranges::find(ordinals, static_cast<int>(ordinal)) == ordinals.end())
      ordinals.push_back(static_cast<int>(ordinal));
  };
  if (joined.empty()) {
    for (size_t i = 0; i < gpus.size(); ++i) add(i);
  }
  while (!joined.empty()) {
    const size_t comma = std::min(joined.find(','), joined.size());
    const std::string_view name = joined.substr(0, comma);
    joined.remove_prefix(std::min(comma + 1, joined.size()));
    const auto number = NumberOfGpu(name);
    for (size_t i = 0; i < gpus.size(); ++i) {
      if (number ? i == *number : NameOfGpu(gpus[i]) == name) add(i);
    }
  }
  return ordinals;
}

}  // namespace tally::control
