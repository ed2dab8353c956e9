#include "server/executor/mirror/mirror_process.h"

#include <poll.h>
#include <unistd.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "base/log.h"
#include "base/thread.h"
#include "base/unique_fd.h"
#include "server/executor/driver/driver_libraries.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/mirror/mirror_service.h"

namespace tally::server {
namespace {

std::optional<int> NumberOf(std::string_view text) {
  int number = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || number < 0) return std::nullopt;
  return number;
}

void EndWithHome() {
  pollfd home{kMirrorSocketFd, POLLRDHUP, 0};
  while (::poll(&home, 1, -1) <= 0) {
  }
  ::_exit(0);
}

}  // namespace

bool IsMirror(int argc, char** argv) { return argc == kNumMirrorArguments && std::string_view(argv[1]) == kMirrorFlag; }

int RunMirror(int argc, char** argv, const std::function<void(std::chrono::microseconds)>& want_time_slice) {
  SetLogName("tally-mirror");
  UniqueFd page(kMirrorPageFd), socket(kMirrorSocketFd);
  // A thread of its own: the one that serves may be waiting in the driver for a kernel that never ends.
  auto watch = StartThread("home-watch", EndWithHome);
  if (!watch) {
    LOG_ERROR("{}", watch.error().ToString());
    return 1;
  }
  watch->detach();
  if (!IsMirror(argc, argv)) return 2;
  const auto ordinal = NumberOf(argv[2]), choice = NumberOf(argv[3]);
  if (!ordinal || !choice) return 2;
  const auto driver =
      LoadDriver({.choice = static_cast<control::DriverChoice>(*choice), .cuda_path = argv[4], .sim_path = argv[5]});
  if (!driver) {
    LOG_ERROR("{}", driver.error().ToString());
    return 1;
  }
  const auto service =
      MirrorService::Open(driver->table, *ordinal, std::move(page), std::move(socket), want_time_slice);
  if (!service) {
    LOG_ERROR("{}", service.error().ToString());
    return 1;
  }
  (*service)->Run();
  return 0;
}

}  // namespace tally::server
