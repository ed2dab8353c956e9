// One-line logs to stderr: "tally-executor[123] W session 7: ...". Level from TALLY_LOG (error, warning, info, debug;
// default warning). Thread-safe; each line is one write(2). Never stdout: that belongs to the client's program.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace tally {

enum class LogLevel : int { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Name in front of each line; call once at the start of main. The shim uses "tally".
void SetLogName(std::string_view name);
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, std::string_view text);

}  // namespace tally

#define TALLY_LOG(level, ...)                                                            \
  do {                                                                                   \
    if (::tally::LogEnabled(level)) ::tally::LogLine(level, ::fmt::format(__VA_ARGS__)); \
  } while (false)
#define LOG_ERROR(...) TALLY_LOG(::tally::LogLevel::kError, __VA_ARGS__)
#define LOG_WARNING(...) TALLY_LOG(::tally::LogLevel::kWarning, __VA_ARGS__)
#define LOG_INFO(...) TALLY_LOG(::tally::LogLevel::kInfo, __VA_ARGS__)
#define LOG_DEBUG(...) TALLY_LOG(::tally::LogLevel::kDebug, __VA_ARGS__)
