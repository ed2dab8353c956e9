// Names that clients give.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

namespace tally::server {

// Text of a client for logs, labels and terminals: printable ASCII, always terminated.
template <size_t size>
std::string PrintableName(const char (&text)[size]) {
  std::string name(text, ::strnlen(text, size - 1));
  for (char& letter : name) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return name;
}

// Of a program without a grant.
template <size_t size>
std::string TenantName(const char (&text)[size]) {
  std::string name = PrintableName(text);
  return name.empty() ? "unnamed" : name;
}

}  // namespace tally::server
