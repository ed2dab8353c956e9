// Text of others in Graphviz's language.
#pragma once

#include <string>
#include <string_view>

#include "base/printable.h"

namespace tally {

// What may stand between the quotes of a label: nothing of it ends the label, begins a line or moves a cursor.
inline std::string GraphvizLabel(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') escaped += '\\';
    escaped += IsPrintable(letter) ? letter : '?';
  }
  return escaped;
}

}  // namespace tally
