// For LD_PRELOAD: what a native program can do to its own channel groups. From the repository's root:
//   g++ -std=c++20 -O2 -fPIC -shared -static-libstdc++ -static-libgcc -I. preload.cc -o preload.so
//       server/executor_process/observed_ioctl.cc server/executor_process/channel_groups.cc
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>
#define private public
#include "server/executor_process/channel_groups.h"
#undef private

using tally::server::ChannelGroups;

// The sum of what `act` says of each group that runs kernels.
template <typename Act>
static int OfEach(const Act& act) {
  ChannelGroups& groups = ChannelGroups::OfThisProcess();
  const std::lock_guard lock(groups.mutex_);
  int sum = 0;
  for (auto& group : groups.groups_) {
    if (group.is_compute) sum += act(groups, group);
  }
  return sum;
}

extern "C" {
int x_groups() {
  return OfEach([](auto&, auto& group) { return 100 + static_cast<int>(group.channels.size()); });
}
int x_preempt() {
  return OfEach([](auto& groups, auto& group) { return groups.TakeOff(group) ? 1 : 100; });
}
int x_off() { return static_cast<int>(ChannelGroups::OfThisProcess().Suspend(0, true)); }
int x_on() { return static_cast<int>(ChannelGroups::OfThisProcess().Suspend(0, false)); }
int x_slice() {
  return OfEach([](auto& groups, auto& group) { return groups.HaveListReadAgain(group), 1; });
}
int x_reenable() {
  return OfEach([](auto& groups, auto& group) {
    const int is_disabled = groups.DisableChannels(group, true);
    groups.DisableChannels(group, false);
    return is_disabled;
  });
}
}
