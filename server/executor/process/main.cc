// tally-executor: the process that owns the GPU for one domain; or a mirror of one, on one further GPU.
#include <malloc.h>

#include <chrono>

#include "base/journal.h"
#include "base/log.h"
#include "server/executor/mirror/mirror_process.h"
#include "server/executor/process/command_line.h"
#include "server/executor/process/domain_process.h"
#include "server/executor/process/gpu_channel_groups.h"

int main(int argc, char** argv) {
  if (tally::server::IsMirror(argc, argv)) {
    return tally::server::RunMirror(argc, argv, [](std::chrono::microseconds slice) {
      tally::server::GpuChannelGroups::OfThisProcess().WantTimeSlice(slice);
    });
  }
  tally::SetLogName("tally-executor");
  tally::UseJournalLevels();
  // Buffers of channels go back to the system with them. In the arenas of malloc, one per thread, they would stay.
  ::mallopt(M_MMAP_THRESHOLD, 64 << 10);
  auto parsed = tally::server::ParseExecutorCommandLine(argc, argv);
  if (const int* exit_status = std::get_if<int>(&parsed)) return *exit_status;
  return tally::server::RunDomainProcess(std::move(std::get<tally::server::ExecutorOptions>(parsed)));
}
