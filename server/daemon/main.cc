// tallyd: the control plane. Never on the path of a CUDA call.
#include <malloc.h>

#include <cstdlib>

#include "base/journal.h"
#include "base/log.h"
#include "server/daemon/command_line.h"
#include "server/daemon/daemon.h"

int main(int argc, char** argv) {
  tally::SetLogName("tallyd");
  tally::UseJournalLevels();
  // Twenty threads that rarely work: an arena of the allocator for each would only make tallyd grow for half a minute.
  ::mallopt(M_ARENA_MAX, 2);
  auto parsed = tally::server::ParseDaemonCommandLine(argc, argv);
  if (const int* exit_status = std::get_if<int>(&parsed)) return *exit_status;
  const auto& start = std::get<tally::server::DaemonStart>(parsed);
  // A service says what it does; a private one of tally-run only what is wrong.
  if (std::getenv("TALLY_LOG") == nullptr && start.config.embedded_parent == 0) {
    tally::SetLogLevel(tally::LogLevel::kInfo);
  }
  return tally::server::RunDaemon(start);
}
