// One grant for each device that a container has. A device that is given out again has a fresh one: programs of whoever
// had it before are ended, and its socket leads nowhere. Any thread.
//
// Grants are tallyd's and outlive this plugin. So nothing is revoked but by giving a device out again: a list of pods
// that is short for a moment, as after a restart of kubelet, must end nobody.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "base/status.h"
#include "server/device-plugin/tallyd.h"
#include "server/device-plugin/virtual_devices.h"

namespace tally::device_plugin {

class DeviceGrants {
 public:
  // `tallyd` must outlive it.
  explicit DeviceGrants(Tallyd& tallyd) : tallyd_(tallyd) {}

  // The socket of its new grant. kUnavailable: tallyd does not answer, and nothing has changed for certain; kubelet
  // fails the pod, and asks again with the next one.
  Result<std::string> GiveOut(const Resource& resource, const std::string& device);

  // What kubelet says about who has which device of `resource`. Labels grants. Makes those that a restart of the
  // machine took: kubelet does not ask again for containers that it starts anew. One that was here in this plugin's
  // life and is not there any more was revoked by somebody, and stays so.
  Status Learn(const Resource& resource, const std::map<std::string, Holder>& holders);

 private:
  Status MakeAgain(const Resource& resource, const std::string& device);  // mutex_ is held

  Tallyd& tallyd_;
  std::mutex mutex_;
  std::set<std::string> seen_;  // tenants; guarded by mutex_, which is held during calls to tallyd
};

}  // namespace tally::device_plugin
