#include "base/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/log_prefixes.h"
#include "base/printable.h"

namespace tally {
namespace {

// Plain arrays and atomics: no static constructor, usable at any time of the process's life.
constinit char g_name[32] = "tally";
constinit std::atomic<int> g_level{-1};  // -1: not yet read from the environment
constinit const LogPrefixes* g_prefixes = nullptr;

int LevelFromEnvironment() {
  const char* text = std::getenv("TALLY_LOG");
  if (text == nullptr) return static_cast<int>(LogLevel::kWarning);
  static constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
  for (int level = 0; level < 4; ++level) {
    if (std::strcmp(text, kNames[level]) == 0) return level;
  }
  return static_cast<int>(LogLevel::kWarning);
}

}  // namespace

void SetLogName(std::string_view name) {
  const size_t size = std::min(name.size(), sizeof(g_name) - 1);
  std::memcpy(g_name, name.data(), size);
  g_name[size] = '\0';
}

void SetLogLevel(LogLevel level) { g_level.store(static_cast<int>(level), std::memory_order_relaxed); }

void SetLogPrefixes(const LogPrefixes* prefixes) { g_prefixes = prefixes; }

const char* LogPrefix(LogLevel level) { return g_prefixes != nullptr ? (*g_prefixes)[static_cast<size_t>(level)] : ""; }

bool LogEnabled(LogLevel level) {
  int current = g_level.load(std::memory_order_relaxed);
  if (current < 0) {
    current = LevelFromEnvironment();
    g_level.store(current, std::memory_order_relaxed);
  }
  return static_cast<int>(level) <= current;
}

void LogLine(LogLevel level, std::string_view text) {
  // One message is one line, and moves no cursor: names in it may be a client's.
  const std::string line = OneLine(fmt::format("{}{}[{}] {} {}", LogPrefix(level), g_name, ::getpid(),
                                               "EWID"[static_cast<int>(level)], text)) +
                           '\n';
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace tally
