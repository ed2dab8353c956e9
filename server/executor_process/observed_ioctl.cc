// The process's ioctl: libcuda, which is loaded later, finds this one before the C library's, because the executor
// exports it (control.cmake).
#include <cstdarg>

#include "server/executor_process/channel_groups.h"

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return tally::server::ChannelGroups::OfThisProcess().Forward(fd, request, argument);
}
