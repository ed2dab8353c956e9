// Names that clients give.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

#include "base/printable.h"

namespace tally::server {

// Text of a client for logs, labels and terminals: printable ASCII, always terminated.
template <size_t size>
std::string PrintableName(const char (&text)[size]) {
  return Printable({text, ::strnlen(text, size - 1)});
}

// Of a program without a grant.
template <size_t size>
std::string TenantName(const char (&text)[size]) {
  std::string name = PrintableName(text);
  return name.empty() ? "unnamed" : name;
}

}  // namespace tally::server
