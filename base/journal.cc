#include "base/journal.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cstdlib>

#include "base/log_prefixes.h"

namespace tally {
namespace {

// $JOURNAL_STREAM names the stream; stderr may have been sent elsewhere since.
bool IsStderrAJournalStream() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat state {};
  if (stream == nullptr || ::fstat(STDERR_FILENO, &state) != 0) return false;
  return fmt::format("{}:{}", state.st_dev, state.st_ino) == stream;
}

}  // namespace

void UseJournalLevels() {
  static constexpr LogPrefixes kLevels = {SD_ERR, SD_WARNING, SD_INFO, SD_DEBUG};
  if (IsStderrAJournalStream()) SetLogPrefixes(&kLevels);
}

}  // namespace tally
