// The process's ioctl: libcuda, which is loaded later, finds this one before the C library's, because the executor
// exports it (server/executor/CMakeLists.txt).
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>

#include "server/executor/process/gpu_channel_groups.h"

namespace tally::server {
namespace {

int SystemIoctl(int fd, unsigned long request, void* argument) {
  return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
}

}  // namespace

GpuChannelGroups& GpuChannelGroups::OfThisProcess() {
  static GpuChannelGroups* const groups =
      new GpuChannelGroups(&SystemIoctl);  // the driver's threads outlive destruction
  return *groups;
}

}  // namespace tally::server

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return tally::server::GpuChannelGroups::OfThisProcess().Forward(fd, request, argument);
}
