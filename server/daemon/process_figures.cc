#include "server/daemon/process_figures.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

namespace tally::server {
namespace {

// Fields of proc_pid_stat(5) as the manual counts them; those up to the second end with the name's last bracket.
constexpr int kUserTime = 14, kSystemTime = 15, kStartTime = 22, kVirtualBytes = 23, kResidentPages = 24;

std::string ReadAll(const char* path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

uint64_t StatField(const std::string& stat, int number) {
  std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string field;
  for (int i = 3; i <= number; ++i) fields >> field;
  uint64_t value = 0;
  std::from_chars(field.data(), field.data() + field.size(), value);  // 0 if it is no number
  return value;
}

// When the machine was started, in seconds of the epoch.
double BootTime() {
  std::istringstream lines(ReadAll("/proc/stat"));
  for (std::string word; lines >> word;) {
    if (word != "btime") continue;
    double seconds = 0;
    lines >> seconds;
    return seconds;
  }
  return 0;
}

}  // namespace

ProcessFigures FiguresOfThisProcess() {
  static const double boot_time = BootTime();
  const std::string stat = ReadAll("/proc/self/stat");
  const auto ticks_per_second = static_cast<double>(std::max(::sysconf(_SC_CLK_TCK), 1L));
  const auto seconds = [&](int field) { return static_cast<double>(StatField(stat, field)) / ticks_per_second; };
  ProcessFigures figures;
  figures.cpu_seconds = seconds(kUserTime) + seconds(kSystemTime);
  figures.start_time_seconds = boot_time + seconds(kStartTime);
  figures.virtual_memory_bytes = StatField(stat, kVirtualBytes);
  figures.resident_memory_bytes = StatField(stat, kResidentPages) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  std::error_code error;
  const std::filesystem::directory_iterator fds("/proc/self/fd", error);
  if (!error) figures.num_open_fds = static_cast<uint64_t>(std::distance(begin(fds), end(fds)));
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) figures.most_fds = limit.rlim_cur;
  return figures;
}

}  // namespace tally::server
