// The plugin's own thread: once a second it looks at kubelet, tallyd and the GPUs, and tells each of the others.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/device-plugin/executor_cgroup.h"
#include "server/device-plugin/resource_server.h"

namespace tally::device_plugin {

struct PluginOptions {
  std::string socket;  // tallyd's, of clients
  std::string plugin_directory = "/var/lib/kubelet/device-plugins";
  std::string pod_resources = "/var/lib/kubelet/pod-resources/kubelet.sock";
  std::vector<Resource> resources;
  ContainerPlaces places;
  std::string executor_cgroup;  // empty: executors stay where tallyd is
};

class Plugin {
 public:
  // `list_gpus`: UUIDs of the GPUs that answer now, as NVML has them. `tallyd` must outlive it.
  Plugin(const PluginOptions& options, Tallyd& tallyd, std::function<std::vector<std::string>()> list_gpus);

  void Tick(RegistrationPace::Time now);

 private:
  // Tallyd that does not answer is as good as no GPU; after a few times, because it may be starting again.
  void LookAtGpus();
  void LookAtPods();
  void LookAtExecutors();

  Tallyd& tallyd_;
  const std::function<std::vector<std::string>()> list_gpus_;
  Kubelet kubelet_;
  DeviceGrants grants_;
  GpuRoster roster_;
  int num_silences_ = 0;  // of tallyd, one after another
  std::optional<ExecutorCgroup> executor_cgroup_;
  std::string last_gpu_problem_, last_pod_problem_, last_executor_problem_;
  std::vector<std::unique_ptr<ResourceServer>> servers_;
};

}  // namespace tally::device_plugin
