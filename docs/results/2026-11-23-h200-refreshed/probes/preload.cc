// Experiment: what a native program can do to its own channel groups.
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>
#define private public
#include "server/executor_process/channel_groups.h"
#undef private
using tally::server::ChannelGroups;
extern "C" {
int x_groups() {
  auto& g = ChannelGroups::OfThisProcess();
  std::lock_guard l(g.mutex_);
  int n = 0;
  for (auto& x : g.groups_)
    if (x.is_compute) n += 100 + x.channels.size();
  return n;
}
int x_preempt() {
  auto& g = ChannelGroups::OfThisProcess();
  std::lock_guard l(g.mutex_);
  int n = 0;
  for (auto& x : g.groups_)
    if (x.is_compute) n += g.TakeOff(x) ? 1 : 100;
  return n;
}
int x_off() { return (int)ChannelGroups::OfThisProcess().Suspend(0, true); }
int x_on() { return (int)ChannelGroups::OfThisProcess().Suspend(0, false); }
int x_slice() {
  auto& g = ChannelGroups::OfThisProcess();
  std::lock_guard l(g.mutex_);
  int n = 0;
  for (auto& x : g.groups_)
    if (x.is_compute) {
      g.HaveListReadAgain(x);
      n++;
    }
  return n;
}
// disable/enable all channels but the first ones: which of them are live?
int x_reenable() {
  auto& g = ChannelGroups::OfThisProcess();
  std::lock_guard l(g.mutex_);
  int n = 0;
  for (auto& x : g.groups_)
    if (x.is_compute) {
      n += g.DisableChannels(x, true);
      g.DisableChannels(x, false);
    }
  return n;
}
}
