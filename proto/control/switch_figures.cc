#include "proto/control/switch_figures.h"

#include <nlohmann/json.hpp>

namespace tally::control {

std::optional<SwitchFigures> ParseSwitchFigures(const std::string& json) {
  const auto parsed = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return std::nullopt;
  const auto number = [&](const char* key) {
    const auto found = parsed.find(key);
    return found != parsed.end() && found->is_number() ? found->get<double>() : -1.0;
  };
  SwitchFigures figures;
  figures.acts = parsed.value("acts", nlohmann::json()) == true;
  figures.p50_us = number("p50_us");
  figures.p99_us = number("p99_us");
  figures.own_p99_us = number("own_p99_us");
  if (figures.p50_us < 0 || figures.p99_us < 0 || figures.own_p99_us < 0) return std::nullopt;
  return figures;
}

}  // namespace tally::control
