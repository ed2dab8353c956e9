#include "images/ptx_text.h"

#include <algorithm>
#include <charconv>

namespace tally::images {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\v\f";

std::unexpected<Status> NoHead() {
  return Error(StatusCode::kInvalidArgument, "text without the directives that PTX begins with");
}

std::string_view AfterBlanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

// Without the blanks and comments that it begins with.
std::string_view AfterComments(std::string_view text) {
  for (;;) {
    text = AfterBlanks(text);
    const bool is_line = text.starts_with("//");
    if (!is_line && !text.starts_with("/*")) return text;
    const size_t end = text.find(is_line ? "\n" : "*/", 2);
    if (end == std::string_view::npos) return {};
    text = text.substr(end + (is_line ? 1 : 2));
  }
}

bool Skip(std::string_view& text, std::string_view word) {
  text = AfterComments(text);
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

template <typename Number>
bool ReadNumber(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$';
}

}  // namespace

Result<PtxHead> ReadPtxHead(std::string_view ptx) {
  PtxHead head;
  if (!Skip(ptx, ".version") || (ptx = AfterBlanks(ptx), !ReadNumber(ptx, head.version_major)) ||
      !ptx.starts_with('.') || (ptx.remove_prefix(1), !ReadNumber(ptx, head.version_minor))) {
    return NoHead();
  }
  if (!Skip(ptx, ".target") || (ptx = AfterBlanks(ptx), !ptx.starts_with("sm_")) ||
      (ptx.remove_prefix(3), !ReadNumber(ptx, head.target))) {
    return NoHead();
  }
  if (ptx.starts_with('a') || ptx.starts_with('f')) head.suffix = ptx.front();
  ptx.remove_prefix(std::min(ptx.find('\n'), ptx.size()));  // options of the target
  uint32_t address_bits = 0;
  if (!Skip(ptx, ".address_size") || (ptx = AfterBlanks(ptx), !ReadNumber(ptx, address_bits)) || address_bits != 64)
    return NoHead();
  return head;
}

bool DefinesKernel(std::string_view ptx, std::string_view name) {
  constexpr std::string_view kEntry = ".entry";
  for (size_t at = ptx.find(kEntry); at != std::string_view::npos; at = ptx.find(kEntry, at + 1)) {
    const std::string_view rest = AfterBlanks(ptx.substr(at + kEntry.size()));
    if (rest.starts_with(name) && rest.size() > name.size() && !IsNameCharacter(rest[name.size()])) return true;
  }
  return false;
}

bool HasContractibleMultiply(std::string_view ptx) {
  constexpr std::string_view kMultiply = "mul.";
  for (size_t at = ptx.find(kMultiply); at != std::string_view::npos; at = ptx.find(kMultiply, at + 1)) {
    const std::string_view instruction = ptx.substr(at, std::min<size_t>(ptx.find_first_of(kBlanks, at) - at, 32));
    const bool is_float =
        instruction.find(".f") != std::string_view::npos || instruction.find(".bf") != std::string_view::npos;
    if (is_float && instruction.find(".r") == std::string_view::npos) return true;
  }
  return false;
}

}  // namespace tally::images
