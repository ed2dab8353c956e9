#include "ptx-transforms/syntax/module.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tally::ptx_transforms {
namespace {

std::vector<uint32_t> LineStarts(std::string_view text) {
  std::vector<uint32_t> starts = {0};
  for (size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1))
    starts.push_back(static_cast<uint32_t>(at + 1));
  return starts;
}

}  // namespace

std::string_view Arena::Keep(std::string_view text) {
  if (text.empty()) return {};
  char* copy = static_cast<char*>(memory_.allocate(text.size(), 1));
  std::memcpy(copy, text.data(), text.size());
  return {copy, text.size()};
}

Module::Module(std::string source)
    : source_(std::make_unique<const std::string>(std::move(source))),
      arena_(std::make_unique<Arena>()),
      line_starts_(LineStarts(*source_)) {}
Module::Module(Module&&) noexcept = default;
Module& Module::operator=(Module&&) noexcept = default;
Module::~Module() = default;

SourcePosition Module::PositionAt(uint32_t offset) const {
  const auto after = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  const auto line = static_cast<uint32_t>(after - line_starts_.begin());
  return {line, offset - line_starts_[line - 1] + 1};
}

const Function* Module::FindFunction(std::string_view name) const {
  const Function* found = nullptr;
  for (const Item& item : items_) {
    const auto* function = std::get_if<Function>(&item.node);
    if (function == nullptr || function->name != name) continue;
    if (function->has_body) return function;
    if (found == nullptr) found = function;
  }
  return found;
}

Function* Module::FindFunction(std::string_view name) {
  return const_cast<Function*>(std::as_const(*this).FindFunction(name));
}

}  // namespace tally::ptx_transforms
