#include "server/executor_process/time_slices.h"

#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace tally::server {
namespace {

// NVOS54_PARAMETERS: a control call to an object of the resource manager.
struct RmControl {
  uint32_t client;
  uint32_t object;
  uint32_t command;
  uint32_t flags;
  uint64_t parameters;  // address of them
  uint32_t parameter_bytes;
  uint32_t status;  // out; 0 is success
};
static_assert(sizeof(RmControl) == 32);

constexpr unsigned long kControlRequest = _IOWR('F', 0x2A, RmControl);
// Of KEPLER_CHANNEL_GROUP_A. The parameter of both is one u64, microseconds.
constexpr uint32_t kGpfifoSchedule = 0xA06C0101;
constexpr uint32_t kSetTimeSlice = 0xA06C0103;
constexpr uint32_t kGetTimeSlice = 0xA06C0104;

int SystemIoctl(int fd, unsigned long request, void* argument) {
  return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
}

}  // namespace

TimeSlices& TimeSlices::OfThisProcess() {
  static TimeSlices* const slices = new TimeSlices(&SystemIoctl);  // the driver's threads outlive static destruction
  return *slices;
}

int TimeSlices::Forward(int fd, unsigned long request, void* argument) {
  if (request != kControlRequest || argument == nullptr) return kernel_(fd, request, argument);
  auto* control = static_cast<RmControl*>(argument);
  if (control->command == kSetTimeSlice && control->parameter_bytes == sizeof(uint64_t) && control->parameters != 0) {
    return ForwardSet(fd, request, argument, *reinterpret_cast<const uint64_t*>(control->parameters));
  }
  const int result = kernel_(fd, request, argument);
  if (control->command == kGpfifoSchedule && result == 0 && control->status == 0) {
    const std::lock_guard lock(mutex_);
    Remember(fd, control->client, control->object);
  }
  return result;
}

int TimeSlices::ForwardSet(int fd, unsigned long request, void* argument, uint64_t own_us) {
  auto* control = static_cast<RmControl*>(argument);
  const std::lock_guard lock(mutex_);
  Group& group = Remember(fd, control->client, control->object);
  group.own_us = own_us;
  if (wanted_us_ != 0 && Set(group, wanted_us_)) {
    control->status = 0;
    return 0;
  }
  return kernel_(fd, request, argument);
}

void TimeSlices::Want(std::chrono::microseconds slice) {
  const std::lock_guard lock(mutex_);
  wanted_us_ = static_cast<uint64_t>(slice.count());
  for (const Group& group : groups_) {
    if (const uint64_t wanted = WantedFor(group); wanted != 0) Set(group, wanted);
  }
}

TimeSlices::Report TimeSlices::Check() {
  const std::lock_guard lock(mutex_);
  Report report;
  std::erase_if(groups_, [&](Group& group) {
    uint64_t slice_us = 0;
    if (!Get(group, &slice_us)) return true;
    if (group.own_us == 0) group.own_us = slice_us;
    const uint64_t wanted = WantedFor(group);
    if (slice_us != wanted && Set(group, wanted)) Get(group, &slice_us);
    const std::chrono::microseconds slice(slice_us);
    report.shortest = report.num_groups == 0 ? slice : std::min(report.shortest, slice);
    report.longest = std::max(report.longest, slice);
    ++report.num_groups;
    if (slice_us != wanted) ++report.num_refused;
    return false;
  });
  return report;
}

TimeSlices::Group& TimeSlices::Remember(int fd, uint32_t client, uint32_t object) {
  for (Group& group : groups_) {
    if (group.client != client || group.object != object) continue;
    group.fd = fd;
    return group;
  }
  return groups_.emplace_back(Group{fd, client, object, 0});
}

bool TimeSlices::Set(const Group& group, uint64_t slice_us) {
  RmControl control{
      group.client, group.object, kSetTimeSlice, 0, reinterpret_cast<uint64_t>(&slice_us), sizeof(slice_us), 0};
  return kernel_(group.fd, kControlRequest, &control) == 0 && control.status == 0;
}

bool TimeSlices::Get(const Group& group, uint64_t* slice_us) {
  RmControl control{
      group.client, group.object, kGetTimeSlice, 0, reinterpret_cast<uint64_t>(slice_us), sizeof(*slice_us), 0};
  return kernel_(group.fd, kControlRequest, &control) == 0 && control.status == 0;
}

}  // namespace tally::server
