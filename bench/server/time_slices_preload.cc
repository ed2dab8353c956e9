// For LD_PRELOAD: gives a native program's contexts the time slice TALLY_TIME_SLICE_US. What the driver can do without
// a daemon, for comparison only: who preloads it must know which programs share the GPU.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>

#include "server/executor_process/time_slices.h"

namespace {

tally::server::TimeSlices& Slices() {
  static tally::server::TimeSlices* const slices = [] {
    auto* made = new tally::server::TimeSlices([](int fd, unsigned long request, void* argument) {
      return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
    });
    const char* wanted = std::getenv("TALLY_TIME_SLICE_US");
    if (wanted != nullptr) made->Want(std::chrono::microseconds(std::strtoll(wanted, nullptr, 10)));
    return made;
  }();
  return *slices;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return Slices().Forward(fd, request, argument);
}
