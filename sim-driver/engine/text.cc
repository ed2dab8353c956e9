#include <fmt/format.h>

#include <string>

namespace tally::sim_driver {

// Declared in text.h, which must not be included here.
std::string FormatErased(fmt::string_view format, fmt::format_args arguments);
std::string FormatErased(fmt::string_view format, fmt::format_args arguments) {
  return fmt::vformat(format, arguments);
}

}  // namespace tally::sim_driver
