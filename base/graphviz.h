// Text of others in Graphviz's language.
#pragma once

#include <string>
#include <string_view>

namespace tally {

// What may stand between the quotes of a label: nothing of it ends the label, begins a line or moves a cursor.
inline std::string GraphvizLabel(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') escaped += '\\';
    escaped += code < 0x20 || code >= 0x7F ? '?' : letter;
  }
  return escaped;
}

}  // namespace tally
