#include "server/device-plugin/plugin.h"

#include "base/log.h"

namespace tally::device_plugin {
namespace {

constexpr int kMostSilences = 3;  // in a row, a second apart
constexpr const char* kSoftwareGpu = "software-gpu";

// Once for each.
void SayNew(const std::string& problem, std::string& last) {
  if (!problem.empty() && problem != last) LOG_WARNING("{}", problem);
  last = problem;
}

}  // namespace

Plugin::Plugin(const PluginOptions& options, Tallyd& tallyd, std::function<std::vector<std::string>()> list_gpus)
    : tallyd_(tallyd),
      list_gpus_(std::move(list_gpus)),
      kubelet_(options.plugin_directory, options.pod_resources),
      grants_(tallyd) {
  if (!options.executor_cgroup.empty()) executor_cgroup_.emplace(options.executor_cgroup);
  for (const Resource& resource : options.resources) {
    if (resource.devices_per_gpu == 0) continue;
    servers_.push_back(std::make_unique<ResourceServer>(resource, options.places, grants_, kubelet_));
  }
}

void Plugin::LookAtGpus() {
  const auto driver = tallyd_.Driver();
  std::vector<std::string> uuids;
  if (!driver) {
    SayNew(driver.error().message(), last_gpu_problem_);
    if (++num_silences_ < kMostSilences) return;
  } else {
    num_silences_ = 0;
    uuids = *driver == "sim" ? std::vector<std::string>{kSoftwareGpu} : list_gpus_();
    SayNew(uuids.empty() ? "NVML knows no GPU that answers: nothing can be given out" : "", last_gpu_problem_);
  }
  const auto before = roster_.gpus();
  if (!roster_.See(uuids)) return;
  for (const auto& [uuid, is_well] : roster_.gpus()) {
    const auto was = before.find(uuid);
    if (was == before.end() || was->second != is_well)
      LOG_INFO("GPU {}: {}", uuid, is_well ? "well" : "lost, or its tallyd is silent");
  }
  for (const auto& server : servers_) server->SetDevices(roster_.gpus());
}

void Plugin::LookAtPods() {
  if (num_silences_ > 0 || roster_.gpus().empty()) return;
  const auto holders = kubelet_.WhoHasWhat();
  std::string problem = holders ? "" : holders.error().message();
  for (const auto& server : servers_) {
    if (!problem.empty()) break;
    const auto of_resource = holders->find(server->resource().name);
    if (of_resource == holders->end()) continue;
    problem = grants_.Learn(server->resource(), of_resource->second).message();
  }
  SayNew(problem, last_pod_problem_);
}

void Plugin::LookAtExecutors() {
  if (!executor_cgroup_ || num_silences_ > 0) return;
  const auto executors = tallyd_.Executors();
  SayNew(executors ? executor_cgroup_->Keep(*executors).message() : executors.error().message(),
         last_executor_problem_);
}

void Plugin::Tick(RegistrationPace::Time now) {
  LookAtGpus();
  // Before devices are known kubelet would think that the machine has lost those that its pods have.
  if (!roster_.gpus().empty()) {
    for (const auto& server : servers_) server->Tend(now);
  }
  LookAtPods();
  LookAtExecutors();
}

}  // namespace tally::device_plugin
