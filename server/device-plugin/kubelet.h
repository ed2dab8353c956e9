// The kubelet of this machine: registering with it, and asking it who has what. Calls block, for a few seconds at most;
// any thread.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "server/device-plugin/tallyd.h"

namespace tally::device_plugin {

// A socket's identity: kubelet makes a new one when it starts, perhaps with the number of the old one's inode.
struct SocketStamp {
  uint64_t device = 0, inode = 0;
  int64_t changed_ns = 0;
  bool operator==(const SocketStamp&) const = default;
  bool is_there() const { return inode != 0; }
};

SocketStamp StampOf(const std::string& path);

class Kubelet {
 public:
  // `plugin_directory`: where plugins and kubelet have their sockets. `pod_resources`: the other API's socket.
  Kubelet(std::string plugin_directory, std::string pod_resources)
      : plugin_directory_(std::move(plugin_directory)), pod_resources_(std::move(pod_resources)) {}

  std::string PathOf(const std::string& endpoint) const { return plugin_directory_ + "/" + endpoint; }
  SocketStamp Stamp() const { return StampOf(PathOf("kubelet.sock")); }
  Status Register(const Resource& resource) const;

  // Resource, device, who has it.
  using Holders = std::map<std::string, std::map<std::string, Holder>>;
  Result<Holders> WhoHasWhat() const;

 private:
  const std::string plugin_directory_;
  const std::string pod_resources_;
};

}  // namespace tally::device_plugin
