#include "server/executor/issue/forced_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/log.h"

namespace tally::server {
namespace {

using scheduler::LaunchForm;

struct Name {
  std::string_view text;
  LaunchForm form;
  uint32_t degree;
};
constexpr Name kNames[] = {{"original", LaunchForm::kOriginal, 1},
                           {"slices", LaunchForm::kSlices, 7},
                           {"workers", LaunchForm::kPersistentBlocks, 1},
                           {"gated", LaunchForm::kGated, 1},
                           {"spliced", LaunchForm::kGated, 1}};

}  // namespace

Result<ForcedForm> ForcedForm::Parse(std::string_view text) {
  const size_t colon = text.find(':');
  const auto* name = std::find_if(std::begin(kNames), std::end(kNames),
                                  [&](const Name& n) { return n.text == text.substr(0, colon); });
  const auto refused = [&] {
    return Error(
        StatusCode::kInvalidArgument,
        fmt::format(
            "'{}' is none of original, slices[:DEGREE], workers[:PER_MULTIPROCESSOR], gated[:CHUNK], spliced[:CHUNK]",
            text));
  };
  if (name == std::end(kNames)) return refused();
  ForcedForm result{name->form, name->degree, name->text == "spliced"};
  if (colon == std::string_view::npos) return result;
  const std::string_view degree = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(degree.data(), degree.data() + degree.size(), result.degree);
  const bool is_number = error == std::errc() && end == degree.data() + degree.size();
  if (!is_number || result.degree == 0 || result.degree > 65'536 || result.form == LaunchForm::kOriginal) {
    return refused();
  }
  return result;
}

std::optional<ForcedForm> ForcedForm::OfEnvironment() {
  const char* value = std::getenv("TALLY_FORCE_FORM");
  if (value == nullptr || *value == '\0') return std::nullopt;
  const Result<ForcedForm> parsed = Parse(value);
  if (parsed) return *parsed;
  LOG_WARNING("TALLY_FORCE_FORM: {}", parsed.error().message());
  return std::nullopt;
}

scheduler::LaunchCandidate ForcedForm::CandidateOn(uint32_t num_multiprocessors) const {
  return {form, form == LaunchForm::kPersistentBlocks ? degree * num_multiprocessors : degree};
}

}  // namespace tally::server
