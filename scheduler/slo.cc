#include "scheduler/slo.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace tally::scheduler {
namespace {

struct Unit {
  std::string_view name;
  double nanoseconds;
};
constexpr Unit kUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};

std::unexpected<Status> Wrong(std::string_view text, std::string_view why) {
  return Error(StatusCode::kInvalidArgument,
               fmt::format("'{}' is no latency objective: {}. Write it like p99=2ms", text, why));
}

// A plain decimal number at the front of `text`, which then begins after it.
std::optional<double> TakeNumber(std::string_view& text) {
  const size_t length = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + length, number, std::chars_format::fixed);
  if (length == 0 || error != std::errc() || end != text.data() + length) return std::nullopt;
  text.remove_prefix(length);
  return number;
}

const Unit* FindUnit(std::string_view name) {
  const Unit* found = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const Unit& u) { return u.name == name; });
  return found != std::end(kUnits) ? found : nullptr;
}

}  // namespace

Result<std::chrono::nanoseconds> ParseTime(std::string_view text, std::chrono::nanoseconds least,
                                           std::chrono::nanoseconds most) {
  std::string_view rest = text;
  const std::optional<double> number = TakeNumber(rest);
  const Unit* unit = FindUnit(rest);
  if (!number || unit == nullptr) {
    return Error(StatusCode::kInvalidArgument,
                 fmt::format("'{}' is no time: a number and ns, us, ms or s, like 100ms", text));
  }
  const double nanoseconds = *number * unit->nanoseconds;
  if (nanoseconds < static_cast<double>(least.count()) || nanoseconds > static_cast<double>(most.count())) {
    return Error(StatusCode::kInvalidArgument,
                 fmt::format("'{}' is not between {} and {} ms", text, static_cast<double>(least.count()) / 1e6,
                             static_cast<double>(most.count()) / 1e6));
  }
  return std::chrono::nanoseconds(std::llround(nanoseconds));
}

Result<Slo> ParseSlo(std::string_view text) {
  std::string_view rest = text;
  if (rest.empty() || rest[0] != 'p') return Wrong(text, "it does not begin with p and a percentile");
  rest.remove_prefix(1);
  const std::optional<double> percentile = TakeNumber(rest);
  if (!percentile) return Wrong(text, "there is no number after the p");
  if (*percentile < 1 || *percentile > 99.99) return Wrong(text, "the percentile is not between 1 and 99.99");
  if (rest.empty() || rest[0] != '=') return Wrong(text, "there is no = after the percentile");
  rest.remove_prefix(1);
  const std::optional<double> latency = TakeNumber(rest);
  if (!latency) return Wrong(text, "there is no number after the =");
  if (const Unit* unit = FindUnit(rest); unit != nullptr) {
    const double nanoseconds = *latency * unit->nanoseconds;
    if (nanoseconds < 1e3 || nanoseconds > 3600e9) return Wrong(text, "the latency is not between 1us and 3600s");
    return Slo{*percentile, std::chrono::nanoseconds(std::llround(nanoseconds))};
  }
  return Wrong(text, rest.empty() ? "the latency has no unit (ns, us, ms or s)"
                                  : fmt::format("'{}' is no unit (ns, us, ms or s)", rest));
}

std::string ToText(const Slo& slo) {
  const Unit* best = &kUnits[0];
  for (const Unit& unit : kUnits) {
    if (static_cast<double>(slo.latency.count()) >= unit.nanoseconds) best = &unit;
  }
  return fmt::format("p{}={}{}", slo.percentile, static_cast<double>(slo.latency.count()) / best->nanoseconds,
                     best->name);
}

}  // namespace tally::scheduler
