// Text of others in logs, labels and sentences, and on terminals.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace tally {

// Of ASCII.
inline bool IsPrintable(char letter) { return letter >= ' ' && letter <= '~'; }

// What is not printable becomes '?': nothing of it begins a line or moves a cursor, and all of it is UTF-8.
inline std::string Printable(std::string_view text) {
  std::string printable(text);
  std::ranges::replace_if(
      printable, [](char letter) { return !IsPrintable(letter); }, '?');
  return printable;
}

// What would begin a line or move a cursor becomes '?'. Letters beyond ASCII stay.
inline std::string OneLine(std::string_view text) {
  std::string line(text);
  std::ranges::replace_if(
      line, [](char letter) { return static_cast<unsigned char>(letter) < ' ' || letter == '\x7f'; }, '?');
  return line;
}

// Printable, in quotes; if it is longer than `most_letters`, only its begin.
inline std::string Quoted(std::string_view text, size_t most_letters) {
  std::string quoted = "'";
  quoted += Printable(text.substr(0, most_letters));
  return quoted += text.size() > most_letters ? "...'" : "'";
}

}  // namespace tally
