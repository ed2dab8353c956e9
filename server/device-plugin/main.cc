// tally-device-plugin: kubelet asks it, tallyd is asked by it. Never on the path of a CUDA call.
#include <csignal>
#include <cstdlib>

#include "base/journal.h"
#include "base/log.h"
#include "server/ctl/gpu_readings.h"
#include "server/device-plugin/command_line.h"

namespace {

constexpr timespec kTick{1, 0};

std::vector<std::string> UuidsOf(const tally::cli::GpuReadings& readings) {
  std::vector<std::string> uuids;
  for (const tally::cli::GpuReading& gpu : readings.Read()) {
    if (!gpu.uuid.empty()) uuids.push_back(gpu.uuid);
  }
  return uuids;
}

}  // namespace

int main(int argc, char** argv) {
  tally::SetLogName("tally-device-plugin");
  tally::UseJournalLevels();
  const auto parsed = tally::device_plugin::ParsePluginCommandLine(argc, argv);
  if (const int* exit_status = std::get_if<int>(&parsed)) return *exit_status;
  if (std::getenv("TALLY_LOG") == nullptr) tally::SetLogLevel(tally::LogLevel::kInfo);

  // Before gRPC has threads, which would take them.
  sigset_t ends;
  ::sigemptyset(&ends);
  for (const int number : {SIGTERM, SIGINT}) ::sigaddset(&ends, number);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  const auto& options = std::get<tally::device_plugin::PluginOptions>(parsed);
  const tally::cli::GpuReadings readings;
  tally::device_plugin::TallydBySocket tallyd(options.socket);
  tally::device_plugin::Plugin plugin(options, tallyd, [&readings] { return UuidsOf(readings); });
  do {
    plugin.Tick(std::chrono::steady_clock::now());
  } while (::sigtimedwait(&ends, nullptr, &kTick) < 0);
  return 0;
}
