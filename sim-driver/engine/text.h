// Format: fmt::format, compiled once. The repository uses fmt as headers only; taking its formatting code into each of
// our thirty sources would triple their compile time.
#pragma once

#ifdef FMT_HEADER_ONLY
#undef FMT_HEADER_ONLY
#define TALLY_FMT_WAS_HEADER_ONLY
#endif
#include <fmt/core.h>
#ifdef TALLY_FMT_WAS_HEADER_ONLY
#define FMT_HEADER_ONLY 1
#undef TALLY_FMT_WAS_HEADER_ONLY
#endif

#include <string>

namespace tally::sim_driver {

std::string FormatErased(fmt::string_view format, fmt::format_args arguments);

template <typename... T>
std::string Format(fmt::format_string<T...> format, T&&... arguments) {
  return FormatErased(format, fmt::make_format_args(arguments...));
}

}  // namespace tally::sim_driver
